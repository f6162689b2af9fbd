// Type objects of CPython 3.9 to 3.14, recognised by a property that nothing else has: a type's
// type is a type, and the type of `type` is `type` itself.
#pragma once

#include "sweeper/blob/host.hpp"
#include "sweeper/mark/hash.hpp"
#include "sweeper/python/frames.hpp"

namespace reachscan::sweeper {

// Fields of PyObject and PyTypeObject.
constexpr uint64_t kObjectType = 8, kObjectItems = 16, kObjectBytes = 16;
constexpr uint64_t kTypeName = 24, kTypeBasicSize = 32, kTypeItemSize = 40, kTypeDealloc = 48,
                   kTypeFlags = 168, kTypeBase = 256, kTypeBytes = 264;
// tp_flags
constexpr uint64_t kInlineValues = 1 << 2, kManagedWeakReferences = 1 << 3, kManagedDict = 1 << 4,
                   kIsHeapType = 1 << 9, kIsReady = 1 << 12, kHasCollectorHead = 1 << 14,
                   kListSubclass = 1 << 25, kBytesSubclass = 1 << 27, kTextSubclass = 1 << 28,
                   kTypeSubclass = 1ull << 31;

// Returns whether flags are those of `str` itself.
constexpr bool is_text_type(uint64_t flags) {
  return (flags & (kTextSubclass | kIsHeapType)) == kTextSubclass;
}

// Most objects of `str` lack fields that its size includes (PyASCIIObject, since 3.12).
constexpr uint32_t kMinText = 40;

constexpr std::size_t kMaxTypeName = 255;

// What a scan needs to know about a type.
struct PythonType {
  uint64_t address;
  uint32_t basic_size;  // at least this much of an object is in its block; 0: not a type
  uint16_t before;      // bytes of a block before the object in it
  bool is_weak_reference;
  bool is_old_frame;  // of 3.9 or 3.10 (frames.hpp)

  bool is_type() const { return basic_size != 0; }
};

class PythonTypes {
 public:
  explicit PythonTypes(const heaps::Space& space)
      : space_(space), cache_(static_cast<PythonType*>(map_memory(kSlots * sizeof(PythonType)))) {}

  // Returns the type at `address`, if it is one. The result is valid until the next call.
  const PythonType& at(uint64_t address) const {
    PythonType& slot = cache_[address * kGolden >> (64 - kSlotBits)];
    if (slot.address != address) slot = examine(address);
    return slot;
  }

  // Reads tp_name. Returns false if that fails.
  bool read_name(uint64_t type, char (&name)[kMaxTypeName + 1]) const {
    uint64_t at = heaps::word(type + kTypeName);
    for (std::size_t length = 0; length < sizeof name; ++length) {
      if (!space_.readable(at + length, 1)) return false;
      name[length] = heaps::load<char>(at + length);
      if (name[length] == 0) return length > 0;
      if (static_cast<unsigned char>(name[length]) < ' ') return false;
    }
    return false;
  }

 private:
  static constexpr unsigned kSlotBits = 14;
  static constexpr std::size_t kSlots = 1 << kSlotBits;
  static constexpr uint64_t kMaxBasicSize = 1 << 24;
  static constexpr unsigned kMaxMetatypes = 8;
  static constexpr unsigned kMaxBases = 64;

  PythonType examine(uint64_t address) const {
    const PythonType none{address, 0, 0, false, false};
    if (!has_fields(address) || !is_type_of_types(heaps::word(address + kObjectType))) return none;
    uint64_t flags = heaps::word(address + kTypeFlags);
    uint64_t size = heaps::word(address + kTypeBasicSize);
    if ((flags & kIsReady) == 0 || size < kObjectBytes || size > kMaxBasicSize ||
        !space_.is_code(heaps::word(address + kTypeDealloc)))
      return none;
    bool collected = (flags & kHasCollectorHead) != 0;
    bool managed = (flags & (kManagedDict | kManagedWeakReferences)) != 0;
    char name[kMaxTypeName + 1];
    if (!read_name(address, name)) return none;
    return {.address = address,
            .basic_size = is_text_type(flags) ? kMinText : static_cast<uint32_t>(size),
            .before = static_cast<uint16_t>(16 * collected + 16 * managed),
            .is_weak_reference = is_weak_reference(address),
            .is_old_frame = (flags & kIsHeapType) == 0 &&
                            (size == kFrameBytes39 || size == kFrameBytes310) &&
                            __builtin_memcmp(name, "frame", 6) == 0};
  }

  bool has_fields(uint64_t address) const {
    return address % 8 == 0 && address != 0 && space_.readable(address, kTypeBytes);
  }

  bool is_type_of_types(uint64_t type) const {
    for (unsigned i = 0; i < kMaxMetatypes; ++i) {
      if (!has_fields(type) || (heaps::word(type + kTypeFlags) & kTypeSubclass) == 0) return false;
      uint64_t next = heaps::word(type + kObjectType);
      if (next == type) return true;
      type = next;
    }
    return false;
  }

  // Returns whether it is one of the interpreter's types whose objects only watch another object
  // (weakref.ReferenceType, weakref.ProxyType, ...; before 3.10 weakref, weakproxy, ...), or is
  // derived from one.
  bool is_weak_reference(uint64_t type) const {
    for (unsigned i = 0; i < kMaxBases && has_fields(type); ++i) {
      char name[kMaxTypeName + 1];
      bool is_static = (heaps::word(type + kTypeFlags) & kIsHeapType) == 0;
      if (is_static) return read_name(type, name) && __builtin_memcmp(name, "weak", 4) == 0;
      type = heaps::word(type + kTypeBase);
    }
    return false;
  }

  const heaps::Space& space_;
  PythonType* cache_;
};

}  // namespace reachscan::sweeper
