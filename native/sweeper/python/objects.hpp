// CPython objects, recognised by their types:
//
//   [ attributes, weak references ]   since 3.11, if the type has them here
//   [ collector's links ]             if the collector tracks objects of the type
//   references, type, ...             the object: all pointers to it point here
#pragma once

#include "memory/block_map.hpp"
#include "sweeper/python/types.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::Range;

// An object with this many references is never freed (since 3.12).
constexpr uint32_t kImmortal = 1u << 30;

// Since 3.14, flags follow the count.
inline uint32_t python_references(uint64_t object) { return heaps::load<uint32_t>(object); }

class PythonObjects {
 public:
  explicit PythonObjects(const heaps::Space& space) : space_(space), types_(space) {}

  // Returns the object in a block, 0 if there is none.
  uint64_t in(Range block) const {
    for (uint64_t before : {0, 16, 32}) {
      uint64_t object = block.start + before;
      if (object + kObjectBytes > block.end) return 0;
      const PythonType& type = type_of(object);
      if (type.is_type() && type.before == before && object + type.basic_size <= block.end &&
          has_count(object))
        return object;
    }
    return 0;
  }

  const PythonType& type_of(uint64_t object) const {
    return types_.at(heaps::word(object + kObjectType));
  }

  const PythonTypes& types() const { return types_; }

 private:
  // An array of pointers may also contain one to a type. But then it has a pointer in place of the
  // count.
  bool has_count(uint64_t object) const {
    uint64_t count = heaps::word(object);
    return (count >> 32 & 0xffff) == 0 && (count < heaps::kPage || !space_.readable(count, 1));
  }

  const heaps::Space& space_;
  PythonTypes types_;
};

}  // namespace reachscan::sweeper
