// Pointers to arrays of objects that new[] returned. They lead behind the number of these (Itanium
// C++ ABI, 2.7), which delete[] needs to know:
//
//   number of objects | objects
//
// Where the number fits the size of the block, a word that leads there was meant for it, however
// few others like it there are.
#pragma once

#include "sweeper/stale/uses.hpp"

namespace reachscan::sweeper {

inline bool leads_to_array(const BlockMap& blocks, const Word& word) {
  constexpr uint64_t kFewest = 8;  // fewer fit many blocks by chance
  if (word.value != word.target + heaps::kWord) return false;
  uint64_t objects = heaps::word(word.target), bytes = blocks.end_of(word.target) - word.value;
  if (objects < kFewest || objects > bytes / heaps::kWord) return false;
  return bytes % (objects * heaps::kWord) <= heaps::kWord;  // one may have been added by rounding
}

}  // namespace reachscan::sweeper
