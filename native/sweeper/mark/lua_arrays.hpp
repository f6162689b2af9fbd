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
    uint64_t bytes = (heaps::kWord + kTypeBytes) * values + kHintBytes;
    if (!heaps::may_hold_request(blocks.end_of(array) - array, bytes)) return 0;
    uint64_t next = heaps::word(block.start);
    return next == 0 || blocks.block_of(next) != 0 ? array : 0;
  }

 private:
  static constexpr uint64_t kTableBytes = 48, kType = 8, kValues = 12;
  static constexpr uint64_t kHintBytes = 4, kTypeBytes = 1;
  static constexpr uint8_t kTable = 5;
};

}  // namespace reachscan::sweeper
