// Replaces the words of blocks when their contents were not requested. Reports only show the class
// of a word, so another word of the same class will do: an address, zero, a small number, text or
// other data. reachscan/grouping/signatures.py distinguishes the classes.
#pragma once

#include "memory/leftover.hpp"
#include "sweeper/blob/host.hpp"
#include "sweeper/blocks/word_kinds.hpp"

namespace reachscan::sweeper {

constexpr uint64_t kSomeNumber = 1;
// No process has memory at these addresses.
constexpr uint64_t kSomeText = 0x7478'6574'7478'6574;  // "texttext"
constexpr uint64_t kSomeData = 0xdada'dada'dada'dada;

inline uint64_t masked(const heaps::Space& space, uint64_t place, uint64_t word) {
  constexpr uint64_t kSmall = 1 << 16;
  if (word == 0) return 0;
  if (heaps::wrapped(word + kSmall) < 2 * kSmall) return kSomeNumber;  // negative ones too
  if (space.find(word) != nullptr) return word;
  bool is_text = is_text_word(word) && !heaps::may_be_stale_at(place, word);
  return heaps::wrapped(is_text ? kSomeText : kSomeData);
}

// Returns a leading word of a block as it may be sent.
inline uint64_t lead_word(const heaps::Space& space, uint64_t address) {
  uint64_t word = heaps::word(address);
  return control()->withheld != 0 ? masked(space, address, word) : word;
}

}  // namespace reachscan::sweeper
