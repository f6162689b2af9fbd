// The functions by which bionic's malloc, and others that follow it, list their own blocks:
//
//   void malloc_disable(void);   waits until no thread is inside, and keeps the others out
//   int malloc_iterate(uintptr_t base, size_t size,
//                      void (*callback)(uintptr_t base, size_t size, void* arg), void* arg);
//   void malloc_enable(void);
//   ssize_t malloc_backtrace(void* block, uintptr_t* frames, size_t frame_count);
//
// The last one need not be there. It tells where a block was allocated, innermost frame first.
// They are looked up in the dynamic symbols of modules.
#pragma once

#include "heaps/interposed.hpp"

namespace reachscan::heaps::iterated {

// Bounds the work on a process in which such a name is common.
constexpr std::size_t kMaxModules = 8;

struct Interface {
  uint32_t file;
  uint64_t disable;
  uint64_t iterate;
  uint64_t enable;
  uint64_t backtrace;  // 0 if it has none
  uint64_t name;       // the address of the library's; 0 if it has none
  bool of_executable;
};

// Returns the address of a function of a module, 0 if it does not export it.
inline uint64_t find_function(const Space& space, const abi::Mapping& image,
                              const DynamicSection& section, const char* name) {
  constexpr unsigned kTypeMask = 15;
  uint64_t symbol = find_symbol(space, section, name);
  if (symbol == 0) return 0;
  bool fixed = load<uint16_t>(image.start + offsetof(Ehdr, e_type)) == ET_EXEC;
  uint64_t address = word(symbol + offsetof(Sym, st_value)) + (fixed ? 0 : image.start);
  bool is_function = (load<uint8_t>(symbol + offsetof(Sym, st_info)) & kTypeMask) == STT_FUNC;
  const abi::Mapping* m = space.find(address);
  constexpr uint32_t kCode = wire::kRead | wire::kExecute;
  bool is_code = m != nullptr && m->file == image.file && (m->perms & kCode) == kCode;
  return is_function && is_code ? address : 0;
}

// Returns whether a module exports all of them.
inline bool read_interface(const Space& space, const abi::Mapping& image, Interface& found) {
  DynamicSection section;
  if (!read_dynamic_section(space, image.start, section) || !section.has_symbols()) return false;
  auto function = [&](const char* name) { return find_function(space, image, section, name); };
  found = {image.file, 0, function("malloc_iterate"), 0, 0, section.name, section.of_executable};
  if (found.iterate == 0) return false;
  found.disable = function("malloc_disable");
  found.enable = function("malloc_enable");
  found.backtrace = function("malloc_backtrace");
  return found.disable != 0 && found.enable != 0;
}

}  // namespace reachscan::heaps::iterated
