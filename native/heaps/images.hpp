// The images of programs and libraries, as the kernel and the loader have mapped them.
#pragma once

#include <elf.h>

#include "heaps/heap.hpp"

namespace reachscan::heaps {

// Whether images are for the program's word size of 64 bits.
constexpr bool kIs64Bit = kWord == 8;
using Ehdr = std::conditional_t<kIs64Bit, Elf64_Ehdr, Elf32_Ehdr>;
using Phdr = std::conditional_t<kIs64Bit, Elf64_Phdr, Elf32_Phdr>;
using Dyn = std::conditional_t<kIs64Bit, Elf64_Dyn, Elf32_Dyn>;
using Sym = std::conditional_t<kIs64Bit, Elf64_Sym, Elf32_Sym>;

constexpr uint32_t kElfMagic = 0x464c457f;

struct DynamicSection {
  uint64_t symbols = 0;
  uint64_t strings = 0;
  uint64_t gnu_hash = 0;
  uint64_t addresses = 0;  // the global offset table, which the loader fills in
  uint64_t debug = 0;      // what the loader reports to debuggers, or 0
  uint64_t name = 0;       // the address of a library's own name, or 0
  bool of_program = false;
  bool of_executable = false;  // also of a program that needs no loader
  bool is_untouched = false;   // the program's loader has not written to it yet

  bool has_symbols() const { return symbols != 0 && strings != 0 && gnu_hash != 0; }
};

inline bool same_name(const Space& space, uint64_t address, const char* name) {
  for (std::size_t i = 0;; ++i) {
    if (!space.readable(address + i, 1) || load<char>(address + i) != name[i]) return false;
    if (name[i] == 0) return true;
  }
}

constexpr std::size_t kMaxDynamicEntries = 512;

inline bool is_image(const abi::Mapping& m) {
  return (m.flags & abi::kFileBacked) != 0 && (m.perms & wire::kRead) != 0;
}

// The data and .bss of one module, which may be several mappings.
inline Range data_of_module(const Space& space, const abi::Mapping* first) {
  const abi::Mapping* last = first;
  while (last + 1 != space.end() && last[1].start == last->end && Space::is_module_data(last[1]) &&
         (last[1].file == first->file || last[1].file == 0))
    ++last;
  return {first->start, last->end};
}

// Calls visit(file, data) for the data of each module.
template <typename Visit>
void each_module_data(const Space& space, Visit visit) {
  uint64_t done = 0;
  for (const abi::Mapping& m : space) {
    if (!Space::is_module_data(m) || m.start < done) continue;
    Range data = data_of_module(space, &m);
    done = data.end;
    visit(m.file, data);
  }
}

// Returns the size of a module's thread-local variables, 0 if it has none or is not found.
inline uint64_t thread_local_bytes(const Space& space, uint32_t file) {
  for (const abi::Mapping& m : space) {
    if (m.file != file || !is_image(m) || !space.readable(m.start, sizeof(Ehdr)) ||
        load<uint32_t>(m.start) != kElfMagic)
      continue;
    uint64_t headers = m.start + word(m.start + offsetof(Ehdr, e_phoff));
    uint64_t count = load<uint16_t>(m.start + offsetof(Ehdr, e_phnum));
    for (uint64_t at = headers; at < headers + count * sizeof(Phdr); at += sizeof(Phdr))
      if (space.readable(at, sizeof(Phdr)) && load<uint32_t>(at) == PT_TLS)
        return word(at + offsetof(Phdr, p_memsz));
  }
  return 0;
}

// The loader has turned these addresses into absolute ones, except in images it did not load.
inline bool read_dynamic_section(const Space& space, uint64_t base, DynamicSection& section) {
  if (!space.readable(base, sizeof(Ehdr)) || load<uint32_t>(base) != kElfMagic) return false;
  uint64_t headers = base + word(base + offsetof(Ehdr, e_phoff));
  uint64_t count = load<uint16_t>(base + offsetof(Ehdr, e_phnum));
  bool fixed = load<uint16_t>(base + offsetof(Ehdr, e_type)) == ET_EXEC;
  uint64_t dynamic = 0;
  bool interpreted = false, debuggable = false, is_empty = false;
  if (!space.readable(headers, count * sizeof(Phdr))) return false;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t header = headers + i * sizeof(Phdr);
    interpreted = interpreted || load<uint32_t>(header) == PT_INTERP;
    if (load<uint32_t>(header) == PT_DYNAMIC)
      dynamic = word(header + offsetof(Phdr, p_vaddr)) + (fixed ? 0 : base);
  }
  for (std::size_t i = 0; dynamic != 0 && i < kMaxDynamicEntries; ++i) {
    uint64_t entry = dynamic + i * sizeof(Dyn);
    if (!space.readable(entry, sizeof(Dyn))) break;
    is_empty = i == 0 && word(entry) == DT_NULL;
    if (word(entry) == DT_NULL) break;
    if (word(entry) == DT_SYMTAB) section.symbols = word(entry + kWord);
    if (word(entry) == DT_STRTAB) section.strings = word(entry + kWord);
    if (word(entry) == DT_GNU_HASH) section.gnu_hash = word(entry + kWord);
    if (word(entry) == DT_PLTGOT) section.addresses = word(entry + kWord);
    if (word(entry) == DT_SONAME) section.name = word(entry + kWord);
    if (word(entry) != DT_DEBUG) continue;
    section.debug = word(entry + kWord);
    debuggable = true;
  }
  if (section.name != 0) section.name += section.strings;
  section.of_program = interpreted && debuggable;
  section.of_executable = debuggable;
  // A copy or a core file may lack pages that were never written: they read as zeros.
  section.is_untouched = interpreted && is_empty && Space::is_module_data(*space.find(dynamic));
  return dynamic != 0;
}

// Returns whether the loader is still loading the libraries that the program needs. It reports to
// debuggers: at first nothing, then that it is adding libraries (struct r_debug), until all are
// loaded.
inline bool is_being_loaded(const Space& space) {
  constexpr uint64_t kState = 3 * kWord;
  constexpr uint32_t kConsistent = 0;
  for (const abi::Mapping& m : space) {
    DynamicSection section;
    if (!is_image(m) || !read_dynamic_section(space, m.start, section)) continue;
    if (section.is_untouched) return true;
    if (!section.of_program) continue;
    if (section.debug == 0) return true;
    if (space.readable(section.debug + kState, 4))
      return load<uint32_t>(section.debug + kState) != kConsistent;
  }
  return false;
}

// Returns the first mapping of a program that has a loader, or null.
inline const abi::Mapping* find_program(const Space& space) {
  for (const abi::Mapping& m : space) {
    DynamicSection section;
    if (is_image(m) && read_dynamic_section(space, m.start, section) && section.of_program)
      return &m;
  }
  return nullptr;
}

// Returns whether the loader has called the program, after it has initialised the libraries. The
// entry point calls all that follows, so the stack of the first thread holds where that returns to.
// The kernel has left the address of the entry point there.
inline bool has_begun(const Space& space, uint64_t sp) {
  const abi::Mapping *program = find_program(space), *stack = space.find(sp);
  if (program == nullptr || stack == nullptr || (stack->flags & abi::kMainStack) == 0) return true;
  bool fixed = load<uint16_t>(program->start + offsetof(Ehdr, e_type)) == ET_EXEC;
  uint64_t entry = word(program->start + offsetof(Ehdr, e_entry)) + (fixed ? 0 : program->start);
  for (uint64_t at = align_up(sp, kWord); at + kWord <= stack->end; at += kWord) {
    uint64_t value = word(at);
    const abi::Mapping* m = value != entry ? space.find(value) : nullptr;
    if (m != nullptr && m->file == program->file && (m->perms & wire::kExecute) != 0) return true;
  }
  return false;
}

}  // namespace reachscan::heaps
