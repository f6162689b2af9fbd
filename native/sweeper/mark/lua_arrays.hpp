// Arrays of tables in Lua 5.5 (lobject.h, ltable.c). A table points behind the values of its array:
//
//   table   next object | type, ... , number of values | pointer | nodes | ...
//   array   last value | ... | first value | hint, types
//                                          ^
// If there are two or four values, that is the last word of the block, where the links of free
// lists lead, too. The number ahead of the pointer tells that it is none.
#pragma once

#include "memory/block_map.hpp"
#include "memory/rounding.hpp"

namespace reachscan::sweeper {

struct LuaArrays {
  static constexpr uint64_t kPointer = 16;  // in a table

  // Returns the array of a table, 0 if the block is none or has none.
  static uint64_t array_of(const heaps::BlockMap& blocks, heaps::Range block) {
    if (heaps::kWord != 8 || block.end - block.start < kTableBytes) return 0;
    if (heaps::load<uint8_t>(block.start + kType) != kTable) return 0;
    uint64_t value = heaps::word(block.start + kPointer), array = blocks.block_of(value);
    uint64_t values = heaps::load<uint32_t>(block.start + kValues);
    if (array == 0 || values == 0 || value - array != heaps::kWord * values) return 0;
    if (!is_of_size({array, blocks.end_of(array)}, values)) return 0;
    uint64_t next = heaps::word(block.start);
    return next == 0 || blocks.block_of(next) != 0 ? array : 0;
  }

  // Returns whether a block may be an array of two or four values, not all of them nil.
  static bool may_be_one(heaps::Range block) {
    return heaps::kWord == 8 && (has_types(block, 2) || has_types(block, 4));
  }

 private:
  static bool is_of_size(heaps::Range block, uint64_t values) {
    uint64_t bytes = (heaps::kWord + kTypeBytes) * values + kHintBytes;
    return heaps::may_hold_request(block.end - block.start, bytes);
  }

  static bool has_types(heaps::Range block, uint64_t values) {
    if (!is_of_size(block, values)) return false;
    uint64_t hint = block.start + heaps::kWord * values;
    if (heaps::load<uint32_t>(hint) > values) return false;
    uint8_t all = 0;
    for (uint64_t at = hint + kHintBytes; at < hint + kHintBytes + values * kTypeBytes; ++at) {
      auto type = heaps::load<uint8_t>(at);
      if ((type & kTypeMask) > kLastType || type > kHighest) return false;
      all |= type;
    }
    return all != 0;
  }

  static constexpr uint8_t kTypeMask = 15, kLastType = 8, kHighest = 127;
  static constexpr uint64_t kTableBytes = 48, kType = 8, kValues = 12;
  static constexpr uint64_t kHintBytes = 4, kTypeBytes = 1;
  static constexpr uint8_t kTable = 5;
};

}  // namespace reachscan::sweeper
