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

  // An entry consists of the upper half of the address and the rule; its position gives the lower
  // half of the address. An address of 0 marks an empty entry.
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
      std::uint64_t pc = (entry >> 32) << 16 | ((at ^ entry >> 32) & 0xffff);
      if (entry != 0 && pc - 1 >= start && pc - 1 < end)
        __atomic_store_n(&entries_[at], 0, __ATOMIC_RELAXED);
    }
  }

 private:
  static constexpr std::uint64_t tag(std::uint64_t pc) { return pc >> 16; }
  // Unwinding waits for it, so it is a short computation.
  static constexpr std::uint64_t slot(std::uint64_t pc) { return (pc ^ tag(pc)) & 0xffff; }

  std::uint64_t* entries_ = nullptr;
};

}  // namespace reachscan::recorder
