// Rules by return address, shared by all threads without a lock: an entry is one word.
#pragma once

#include <cstddef>

#include "recorder/unwind/rule.hpp"

namespace reachscan::recorder {

class RuleCache {
 public:
  static constexpr std::size_t kBytes = sizeof(std::uint64_t) << 16;

  RuleCache() = default;
  explicit RuleCache(void* zeroed) : entries_(static_cast<std::uint64_t*>(zeroed)) {}

  // An entry consists of a tag and the rule; tag and position give the address. A tag of 0 marks an
  // empty entry.
  bool find(std::uint64_t pc, Rule& rule) const {
    std::uint64_t entry = __atomic_load_n(&entries_[slot(pc)], __ATOMIC_RELAXED);
    if (entry >> 32 != tag(pc)) return false;
    rule = Rule::from_bits(static_cast<std::uint32_t>(entry));
    return true;
  }

  void put(std::uint64_t pc, Rule rule) {
    if (pc >> 48 != 0) return;
    __atomic_store_n(&entries_[slot(pc)], tag(pc) << 32 | rule.bits(), __ATOMIC_RELAXED);
  }

  // There may be other code in [start, end) now.
  void forget(std::uint64_t start, std::uint64_t end) {
    for (std::uint64_t at = 0; at < kBytes / sizeof *entries_; ++at) {
      std::uint64_t entry = __atomic_load_n(&entries_[at], __ATOMIC_RELAXED);
      std::uint64_t pc = pc_of(entry >> 32, at);
      if (entry != 0 && pc - 1 >= start && pc - 1 < end)
        __atomic_store_n(&entries_[at], 0, __ATOMIC_RELAXED);
    }
  }

 private:
  // Two return addresses are rarely closer than four bytes. Neighbours are on few pages, which are
  // all that a short-lived program needs.
  static constexpr unsigned kNear = 2, kSlotBits = 16;
  static constexpr std::uint64_t kNearMask = (1 << kNear) - 1, kSlotMask = (1 << kSlotBits) - 1;

  // The lowest bits of the shifted address also follow from the slot, which makes room.
  static constexpr std::uint64_t tag(std::uint64_t pc) {
    return pc >> kSlotBits ^ (pc & kNearMask);
  }
  // Unwinding waits for it, so it is a short computation.
  static constexpr std::uint64_t slot(std::uint64_t pc) {
    return (pc ^ pc >> kSlotBits) >> kNear & kSlotMask;
  }
  static constexpr std::uint64_t pc_of(std::uint64_t tag, std::uint64_t slot) {
    std::uint64_t upper = tag >> kNear, middle = (slot ^ upper) & kSlotMask;
    std::uint64_t near = (tag ^ middle >> (kSlotBits - kNear)) & kNearMask;
    return upper << (kNear + kSlotBits) | middle << kNear | near;
  }

  std::uint64_t* entries_ = nullptr;
};

}  // namespace reachscan::recorder
