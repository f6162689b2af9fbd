// Names the classes of leaked C++ objects. The first word of an object with virtual functions
// points to its vtable, the word before that to its std::type_info, and that to the name (Itanium
// C++ ABI 2.9.5). All of this is read from memory, so the classes of a stripped program have names,
// too.
#pragma once

#include "sweeper/blob/emit.hpp"
#include "sweeper/mark/address_set.hpp"

namespace reachscan::sweeper {

// Where vtables and the names of types are: read-only data of a module.
inline bool in_constant_data(const heaps::Space& space, uint64_t address) {
  const abi::Mapping* m = space.find(address);
  return m != nullptr && (m->flags & abi::kFileBacked) != 0 && (m->perms & wire::kRead) != 0 &&
         (m->perms & (wire::kExecute | wire::kWrite)) == 0;
}

class TypeNames {
 public:
  explicit TypeNames(const heaps::Space& space) : space_(space) {}

  // Notes the first word of a leaked block; most are not vtables.
  void note(uint64_t value) {
    if (value % heaps::kWord != 0 || value == 0 || seen_.has(value)) return;
    if (in_constant_data(space_, value)) seen_.add(value);
  }

  void send() const {
    seen_.each([this](uint64_t vtable) {
      char name[kMaxName + 1];
      if (read_name(vtable, name)) Record(wire::kTypes).u32(1).u64(vtable).str(name).send();
    });
  }

 private:
  static constexpr std::size_t kMaxName = 1023;
  static constexpr int64_t kMaxOffsetToTop = 1 << 24;

  static bool is_name_character(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '.' || c == '$';
  }

  // A length, or one of the prefixes: nested, standard library, local.
  static bool starts_class_name(char c) {
    return (c >= '1' && c <= '9') || c == 'N' || c == 'S' || c == 'Z';
  }

  bool read_name(uint64_t vtable, char (&name)[kMaxName + 1]) const {
    if (!space_.readable(vtable - 2 * heaps::kWord, 3 * heaps::kWord)) return false;
    int64_t offset_to_top = heaps::as_signed(heaps::word(vtable - 2 * heaps::kWord));
    uint64_t first_function = heaps::word(vtable), type = heaps::word(vtable - heaps::kWord);
    if (offset_to_top > 0 || offset_to_top < -kMaxOffsetToTop) return false;
    if (first_function != 0 && !space_.is_code(first_function)) return false;
    if (type % heaps::kWord != 0 || !space_.readable(type, 2 * heaps::kWord)) return false;
    uint64_t at = heaps::word(type + heaps::kWord);
    if (!in_constant_data(space_, at)) return false;
    // A leading asterisk means that the name is unique by address only.
    if (heaps::load<char>(at) == '*') ++at;
    std::size_t length = 0;
    for (; space_.readable(at + length, 1) && length < kMaxName; ++length) {
      char c = heaps::load<char>(at + length);
      if (c == 0) break;
      if (!is_name_character(c)) return false;
      name[length] = c;
    }
    name[length] = 0;
    return length >= 2 && length < kMaxName && starts_class_name(name[0]);
  }

  const heaps::Space& space_;
  AddressSet seen_;
};

}  // namespace reachscan::sweeper
