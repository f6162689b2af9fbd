// Whether some module other than the C library provides malloc: then the program's blocks are in an
// allocator that must be understood before anything can be said about them.
#pragma once

#include "heaps/images.hpp"

namespace reachscan::heaps {

// Looks `name` up as the dynamic loader does (GNU hash table: bucket, then chain). Returns the
// address of the symbol, or 0 if the module does not define it.
inline uint64_t find_symbol(const Space& space, const DynamicSection& section, const char* name) {
  uint32_t hash = 5381;
  for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  uint64_t table = section.gnu_hash;
  if (!space.readable(table, 16)) return 0;
  uint32_t buckets = load<uint32_t>(table), first = load<uint32_t>(table + 4);
  uint64_t bucket_array = table + 16 + uint64_t{kWord} * load<uint32_t>(table + 8);
  uint64_t chain_array = bucket_array + 4ull * buckets;
  if (buckets == 0 || !space.readable(bucket_array, 4ull * buckets)) return 0;
  uint32_t index = load<uint32_t>(bucket_array + 4ull * (hash % buckets));
  for (; index >= first; ++index) {
    uint64_t link = chain_array + 4ull * (index - first);
    uint64_t symbol = section.symbols + sizeof(Sym) * uint64_t{index};
    if (!space.readable(link, 4) || !space.readable(symbol, sizeof(Sym))) return 0;
    uint32_t chain = load<uint32_t>(link);
    bool defined = load<uint16_t>(symbol + offsetof(Sym, st_shndx)) != SHN_UNDEF;
    if ((chain | 1) == (hash | 1) && defined &&
        same_name(space, section.strings + load<uint32_t>(symbol), name))
      return symbol;
    if ((chain & 1) != 0) return 0;
  }
  return 0;
}

inline bool defines(const Space& space, const DynamicSection& section, const char* name) {
  return find_symbol(space, section, name) != 0;
}

// Returns the base address of a module that defines malloc and is not a `known` file; 0 if there is
// none. Excludes the loader, which defines one for its own use until the library is loaded, and our
// recorder, whose malloc calls the next one.
template <typename IsKnown>
uint64_t find_interposed_malloc(const Space& space, IsKnown is_known) {
  for (const abi::Mapping& m : space) {
    DynamicSection section;
    if (!is_image(m) || is_known(m.file) || !read_dynamic_section(space, m.start, section) ||
        !section.has_symbols())
      continue;
    bool is_loader = defines(space, section, "_dl_allocate_tls");
    bool is_recorder = defines(space, section, "reachscan_recorder");
    if (!is_loader && !is_recorder && defines(space, section, "malloc")) return m.start;
  }
  return 0;
}

// Returns whether that malloc is Scudo's, so that a sentence can name it. Its library exports this
// function, and so do programs that are linked with it.
inline bool is_scudo(const Space& space, uint64_t base) {
  DynamicSection section;
  return read_dynamic_section(space, base, section) && section.has_symbols() &&
         defines(space, section, "__scudo_print_stats");
}

}  // namespace reachscan::heaps
