// Finds the reported blocks that are Python objects, and names their types.
#pragma once

#include "sweeper/blob/emit.hpp"
#include "sweeper/mark/address_set.hpp"
#include "sweeper/python/objects.hpp"

namespace reachscan::sweeper {

class ObjectTypes {
 public:
  explicit ObjectTypes(const PythonObjects& objects) : objects_(objects) {}

  // Returns the type of the object in a block, 0 if there is none.
  uint64_t note(Range block) {
    uint64_t object = objects_.in(block);
    if (object == 0) return 0;
    uint64_t type = objects_.type_of(object).address;
    if (!types_.has(type)) types_.add(type);
    return type;
  }

  void send() const {
    types_.each([this](uint64_t type) {
      char name[kMaxTypeName + 1];
      if (objects_.types().read_name(type, name))
        Record(wire::kPythonTypes).u32(1).u64(type).str(name).send();
    });
  }

 private:
  const PythonObjects& objects_;
  AddressSet types_;
};

}  // namespace reachscan::sweeper
