// Keys of CPython's dictionaries, since 3.11 (Include/internal/pycore_dict.h):
//
//   references | log2 of slots, log2 of bytes of indices, kind | free entries | taken entries |
//   indices | entries | what was there before
//
// The last was not requested, but added by rounding the size up. Two thirds of the slots have an
// entry each. An entry that was never taken is zero.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class PythonKeys {
 public:
  PythonKeys(const heaps::Space& space, const heaps::BlockMap& blocks, Targets& targets)
      : space_(space), blocks_(blocks), targets_(targets) {}

  // Adds what the words behind the entries of a marked block lead to. Thread-safe.
  void look_at(heaps::Range block) const {
    uint64_t end = end_of_entries(block);
    if (end == 0) return;
    each_word(space_, end, block.end, [this](uint64_t, uint64_t value) { targets_.add(value); });
  }

  // Returns whether the word is behind such entries.
  bool end_before(uint64_t owner, uint64_t slot) const {
    const heaps::Range block{owner, blocks_.end_of(owner)};
    if (slot + heaps::rounding(block.end - owner) < block.end) return false;
    uint64_t end = end_of_entries(block);
    return end != 0 && slot >= end;
  }

 private:
  static constexpr uint64_t kSlotBits = 8, kIndexBits = 9, kKind = 10, kFree = 16, kTaken = 24,
                            kHeader = 32;  // of the fields, and where the indices begin
  static constexpr uint8_t kFewestSlotBits = 3, kMostSlotBits = 31;
  // Texts only, in a table of their own or one that objects share, need no hash in their entries.
  static constexpr uint8_t kOfAnything = 0, kShared = 2;

  // Returns 0 if the block contains no keys.
  static uint64_t end_of_entries(heaps::Range block) {
    uint64_t bytes = block.end - block.start;
    if (bytes <= kHeader) return 0;
    auto slot_bits = heaps::load<uint8_t>(block.start + kSlotBits);
    auto kind = heaps::load<uint8_t>(block.start + kKind);
    if (slot_bits < kFewestSlotBits || slot_bits > kMostSlotBits || kind > kShared) return 0;
    if (heaps::load<uint8_t>(block.start + kIndexBits) != index_bits(slot_bits)) return 0;
    uint64_t entries = (2ull << slot_bits) / 3;
    uint64_t request = kHeader + (1ull << index_bits(slot_bits)) +
                       entries * (kind == kOfAnything ? 3 : 2) * sizeof(uint64_t);
    uint64_t free = heaps::load<uint64_t>(block.start + kFree);
    uint64_t taken = heaps::load<uint64_t>(block.start + kTaken);
    bool fits = free <= entries && taken <= entries - free;
    return fits && heaps::may_hold_request(bytes, request) ? block.start + request : 0;
  }

  // An index has as many bytes as it needs.
  static unsigned index_bits(unsigned slot_bits) {
    return slot_bits + (slot_bits < 8 ? 0 : slot_bits < 16 ? 1 : 2);
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
  Targets& targets_;
};

}  // namespace reachscan::sweeper
