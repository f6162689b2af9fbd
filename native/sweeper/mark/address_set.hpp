// A set of addresses. Those that do not fit are forgotten.
#pragma once

#include "sweeper/blob/host.hpp"
#include "sweeper/mark/hash.hpp"

namespace reachscan::sweeper {

class AddressSet {
 public:
  AddressSet() : slots_(static_cast<uint64_t*>(map_memory(kSlots * sizeof(uint64_t)))) {}

  // Returns whether an address needs no add(): it is in the set, or there is no room.
  bool has(uint64_t address) const { return count_ > kSlots / 2 || *slot_of(address) == address; }

  // `address` must not be in the set, and not 0.
  void add(uint64_t address) {
    *slot_of(address) = address;
    ++count_;
  }

  template <typename Visit>
  void each(Visit visit) const {
    for (std::size_t slot = 0; slot < kSlots; ++slot)
      if (slots_[slot] != 0) visit(slots_[slot]);
  }

 private:
  static constexpr unsigned kSlotBits = 16;
  static constexpr std::size_t kSlots = 1u << kSlotBits;

  // Returns the slot of an address, or the free slot where it would be.
  uint64_t* slot_of(uint64_t address) const {
    uint64_t slot = address * kGolden >> (64 - kSlotBits);
    while (slots_[slot] != 0 && slots_[slot] != address) slot = (slot + 1) % kSlots;
    return slots_ + slot;
  }

  uint64_t* slots_;
  std::size_t count_ = 0;
};

}  // namespace reachscan::sweeper
