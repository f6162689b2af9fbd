// Some releases create an object when they are loaded (MallocExtension), replace it by another, and
// never free it. It belongs to the allocator, so it is not the program's leak.
#pragma once

#include "heaps/images.hpp"
#include "heaps/tcmalloc/layout.hpp"

namespace reachscan::heaps::tcmalloc {

class OwnObject {
 public:
  // An object without members: it contains only a pointer to its vtable.
  static constexpr uint32_t kSize = 8;

  OwnObject(const Space& space, uint32_t file) : space_(space) {
    for (const abi::Mapping& m : space) {
      if (m.file != file || (m.flags & abi::kFileBacked) == 0) continue;
      if (image_.end == 0) image_.start = m.start;
      image_.end = m.end;
    }
  }

  bool is_at(uint64_t block) const {
    uint64_t functions = word(block);
    if (!image_.contains(functions) || !space_.readable(functions - 8, 8)) return false;
    uint64_t type = word(functions - 8);
    return image_.contains(type) && space_.readable(type, 16) &&
           same_name(space_, word(type + 8), "15MallocExtension");
  }

 private:
  const Space& space_;
  Range image_{0, 0};
};

}  // namespace reachscan::heaps::tcmalloc
