// Which release of CPython is in the process. Programs export these symbols for their extensions,
// also if they are stripped.
#pragma once

#include "heaps/interposed.hpp"

namespace reachscan::heaps::pymalloc {

constexpr uint32_t kOldest = 0x0309, kNewest = 0x030e;  // as in PY_VERSION_HEX

// Returns the release of the Python in a module; 0 if there is none, 1 if it is older than all that
// are known. Py_Version exists since 3.11, the function since 3.9.
inline uint32_t version_in(const Space& space, const abi::Mapping& m) {
  DynamicSection section;
  if (!is_image(m) || !read_dynamic_section(space, m.start, section) || !section.has_symbols() ||
      !defines(space, section, "Py_InitializeEx"))
    return 0;
  if (uint64_t symbol = find_symbol(space, section, "Py_Version")) {
    bool fixed = load<uint16_t>(m.start + offsetof(Ehdr, e_type)) == ET_EXEC;
    uint64_t at = word(symbol + offsetof(Sym, st_value)) + (fixed ? 0 : m.start);
    return space.readable(at, 4) ? load<uint32_t>(at) >> 16 : 0;
  }
  return defines(space, section, "PyObject_CallNoArgs") ? kOldest : 1;
}

// Returns whether a Python is there whose objects may look otherwise.
inline bool is_unknown_python(const Space& space) {
  for (const abi::Mapping& m : space)
    if (uint32_t version = version_in(space, m); version != 0)
      if (version < kOldest || version > kNewest) return true;
  return false;
}

}  // namespace reachscan::heaps::pymalloc
