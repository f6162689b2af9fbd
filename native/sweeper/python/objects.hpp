// CPython objects, recognised by their types:
//
//   [ attributes, weak references ]   since 3.11, if the type has them here
//   [ collector's links ]             if the collector tracks objects of the type
//   references, type, ...             the object: all pointers to it point here
#pragma once

#include "memory/block_map.hpp"
#include "memory/rounding.hpp"
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
    for (uint64_t before : kBefore) {
      uint64_t object = block.start + before;
      if (object + kObjectBytes > block.end) return 0;
      const PythonType& type = type_of(object);
      if (type.is_type() && type.before == before && object + type.basic_size <= block.end &&
          has_count(object))
        return object;
    }
    return 0;
  }

  // A quick test that most other blocks fail.
  static bool may_be_in(Range block) {
    for (uint64_t before : kBefore) {
      uint64_t object = block.start + before;
      if (object + kObjectBytes > block.end) return false;
      uint64_t type = heaps::word(object + kObjectType);
      uint64_t count = heaps::word(object);
      if (count != 0 && is_count(count) && type % heaps::kWord == 0 && type >= heaps::kPage)
        return true;
    }
    return false;
  }

  bool is_list(uint64_t object) const { return (flags_of(object) & kListSubclass) != 0; }

  // Returns whether a word of the block with an object certainly holds nothing.
  bool is_unused(uint64_t object, uint64_t slot, Range block) const {
    if (slot == object + kTextKind && is_text(object)) return true;
    return slot + heaps::kWord > unused_from(object, block);
  }

  // Calls visit(slot) for each such word.
  template <typename Visit>
  void each_unused_word(uint64_t object, Range block, Visit visit) const {
    if (is_text(object)) visit(object + kTextKind);
    uint64_t slot = unused_from(object, block) / heaps::kWord * heaps::kWord;
    for (; slot + heaps::kWord <= block.end; slot += heaps::kWord) visit(slot);
  }

  const PythonType& type_of(uint64_t object) const {
    return types_.at(heaps::word(object + kObjectType));
  }

  const PythonTypes& types() const { return types_; }

 private:
  // How far from the start of a block an object may be.
  static constexpr uint64_t kBefore[] = {0, 16, 32};
  // Of str (Include/cpython/unicodeobject.h): a byte with flags, where since 3.14 there are others,
  // and the largest header of a text in ASCII. Of bytes: the header.
  static constexpr uint64_t kTextKind = 32, kAsciiBytes = 48, kBytesStart = 32;
  static constexpr uint8_t kCompactAscii = 0x60;

  uint64_t flags_of(uint64_t object) const {
    return heaps::word(heaps::word(object + kObjectType) + kTypeFlags);
  }
  bool is_text(uint64_t object) const { return is_text_type(flags_of(object)); }

  // Returns where the part of a block begins that certainly holds nothing: its end if it is
  // unknown.
  uint64_t unused_from(uint64_t object, Range block) const {
    uint64_t flags = flags_of(object);
    bool is_heap_type = (flags & kIsHeapType) != 0;
    if (is_text(object)) {
      bool is_ascii = (heaps::load<uint8_t>(object + kTextKind) & kCompactAscii) == kCompactAscii;
      return is_ascii ? object + kAsciiBytes : block.end;
    }
    if ((flags & kBytesSubclass) != 0 && !is_heap_type) return object + kBytesStart;
    uint64_t end = end_of(object);
    // Attributes may follow the items of an object of a class, at a multiple of a word.
    if (is_heap_type) end = heaps::align_up(end, heaps::kWord);
    bool fits = end != 0 && heaps::may_hold_request(block.end - block.start, end - block.start);
    return fits ? end : block.end;
  }

  static bool is_count(uint64_t word) { return (word >> 32 & 0xffff) == 0; }

  // An array of pointers may also contain one to a type. But then it has a pointer in place of the
  // count.
  bool has_count(uint64_t object) const {
    uint64_t count = heaps::word(object);
    return is_count(count) && (count < heaps::kPage || !space_.readable(count, 1));
  }

  // Returns where an object ends, 0 if its type does not tell. Generators and frames have another
  // field in place of the number of items.
  uint64_t end_of(uint64_t object) const {
    constexpr uint64_t kMaxItems = 1ull << 32;
    const PythonType& type = type_of(object);
    if ((flags_of(object) & (kTextSubclass | kInlineValues)) != 0) return 0;
    uint64_t item_bytes = heaps::word(type.address + kTypeItemSize), end = object + type.basic_size;
    if (item_bytes == 0) return end;
    uint64_t items = heaps::word(object + kObjectItems);
    bool is_number = items > 0 && items < kMaxItems && item_bytes < heaps::kPage;
    return is_number ? end + items * item_bytes : 0;
  }

  const heaps::Space& space_;
  PythonTypes types_;
};

}  // namespace reachscan::sweeper
