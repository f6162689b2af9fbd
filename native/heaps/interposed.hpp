// Whether some module other than the C library provides malloc: then the program's blocks live in
// an allocator that must be understood before anything can be said about them.
#pragma once

#include <elf.h>

#include "heaps/heap.hpp"

namespace reachscan::heaps {

struct DynamicSection {
  uint64_t symbols = 0;
  uint64_t strings = 0;
  uint64_t gnu_hash = 0;
  uint64_t relocations = 0;
};

constexpr std::size_t kMaxDynamicEntries = 512;

// The loader has turned these addresses into absolute ones, except in images it did not load.
inline bool read_dynamic_section(const Space& space, uint64_t base, DynamicSection& section) {
  if (!space.readable(base, sizeof(Elf64_Ehdr)) || word(base) << 32 >> 32 != 0x464c457f)
    return false;
  uint64_t headers = base + load<uint64_t>(base + offsetof(Elf64_Ehdr, e_phoff));
  uint64_t count = load<uint16_t>(base + offsetof(Elf64_Ehdr, e_phnum));
  bool fixed = load<uint16_t>(base + offsetof(Elf64_Ehdr, e_type)) == ET_EXEC;
  uint64_t dynamic = 0;
  if (!space.readable(headers, count * sizeof(Elf64_Phdr))) return false;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t header = headers + i * sizeof(Elf64_Phdr);
    if (load<uint32_t>(header) == PT_DYNAMIC)
      dynamic = word(header + offsetof(Elf64_Phdr, p_vaddr)) + (fixed ? 0 : base);
  }
  for (std::size_t i = 0; dynamic != 0 && i < kMaxDynamicEntries; ++i) {
    uint64_t entry = dynamic + i * sizeof(Elf64_Dyn);
    if (!space.readable(entry, sizeof(Elf64_Dyn)) || word(entry) == DT_NULL) break;
    if (word(entry) == DT_SYMTAB) section.symbols = word(entry + 8);
    if (word(entry) == DT_STRTAB) section.strings = word(entry + 8);
    if (word(entry) == DT_GNU_HASH) section.gnu_hash = word(entry + 8);
    if (word(entry) == DT_RELA) section.relocations = word(entry + 8);
  }
  return section.symbols != 0 && section.strings != 0 && section.gnu_hash != 0;
}

inline bool same_name(const Space& space, uint64_t address, const char* name) {
  for (std::size_t i = 0;; ++i) {
    if (!space.readable(address + i, 1) || load<char>(address + i) != name[i]) return false;
    if (name[i] == 0) return true;
  }
}

// Looks `name` up as the dynamic loader does (GNU hash table: bucket, then chain).
inline bool defines(const Space& space, const DynamicSection& section, const char* name) {
  uint32_t hash = 5381;
  for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  uint64_t table = section.gnu_hash;
  if (!space.readable(table, 16)) return false;
  uint32_t buckets = load<uint32_t>(table), first = load<uint32_t>(table + 4);
  uint64_t bucket_array = table + 16 + 8ull * load<uint32_t>(table + 8);
  uint64_t chain_array = bucket_array + 4ull * buckets;
  if (buckets == 0 || !space.readable(bucket_array, 4ull * buckets)) return false;
  uint32_t index = load<uint32_t>(bucket_array + 4ull * (hash % buckets));
  for (; index >= first; ++index) {
    uint64_t link = chain_array + 4ull * (index - first);
    uint64_t symbol = section.symbols + sizeof(Elf64_Sym) * uint64_t{index};
    if (!space.readable(link, 4) || !space.readable(symbol, sizeof(Elf64_Sym))) return false;
    uint32_t chain = load<uint32_t>(link);
    bool defined = load<uint16_t>(symbol + offsetof(Elf64_Sym, st_shndx)) != SHN_UNDEF;
    if ((chain | 1) == (hash | 1) && defined &&
        same_name(space, section.strings + load<uint32_t>(symbol), name))
      return true;
    if ((chain & 1) != 0) return false;
  }
  return false;
}

inline bool is_image(const abi::Mapping& m) {
  return (m.flags & abi::kFileBacked) != 0 && (m.perms & wire::kRead) != 0;
}

// Whether some module is mapped whose addresses the loader has not filled in yet. The first of
// these is a pointer to a function that initialises or ends the module, and never changes.
inline bool is_being_loaded(const Space& space) {
  for (const abi::Mapping& m : space) {
    DynamicSection section;
    if (!is_image(m) || !read_dynamic_section(space, m.start, section)) continue;
    uint64_t first = section.relocations;
    if (!space.readable(first, sizeof(Elf64_Rela)) ||
        ELF64_R_TYPE(word(first + offsetof(Elf64_Rela, r_info))) != R_X86_64_RELATIVE)
      continue;
    uint64_t place = m.start + word(first), addend = word(first + offsetof(Elf64_Rela, r_addend));
    if (space.readable(place, 8) && (word(place) == addend || word(place) == 0)) return true;
  }
  return false;
}

// Base address of a module that defines malloc and is none of the `known` files; 0 if there is
// none. The loader defines one for its own use before the library is there.
template <typename IsKnown>
uint64_t find_interposed_malloc(const Space& space, IsKnown is_known) {
  for (const abi::Mapping& m : space) {
    DynamicSection section;
    if (!is_image(m) || is_known(m.file) || !read_dynamic_section(space, m.start, section))
      continue;
    bool is_loader = defines(space, section, "_dl_allocate_tls");
    if (!is_loader && defines(space, section, "malloc")) return m.start;
  }
  return 0;
}

}  // namespace reachscan::heaps
