// Links of glibc's free lists (malloc.c), from a former use of the memory.
//
//   free chunk   header | next chunk | previous chunk | ...
//   bin          head of such a list, one behind the other in an arena
//
// A link leads to the header of a chunk (memory/chunk.hpp), so it looks like a pointer to the last
// word of the block before. Few programs point there. Once the chunk has been merged with others,
// the link may lead into the middle of a block. The other link and the size, next to it, tell what
// it was.
#pragma once

#include "memory/chunk.hpp"
#include "sweeper/stale/uses.hpp"

namespace reachscan::sweeper {

class Links {
 public:
  Links(const heaps::Space& space, const BlockMap& blocks) : space_(space), blocks_(blocks) {}

  bool has(const Word& word) const {
    if (word.owner == 0) return false;
    return blocks_.is_link(word.value) || (may_have_been_chunk(word) && is_in_chunk(word));
  }

  // Returns whether it is the address of a bin. Its list, or the bin itself if that is empty, leads
  // back to it, and so it is with the bins next to it.
  [[gnu::noinline]] bool is_bin(uint64_t address) const {
    return address % heaps::kWord == 0 && blocks_.block_of(address) == 0 && leads_back(address) &&
           (leads_back(address - kEachBin) || leads_back(address + kEachBin));
  }

 private:
  static constexpr uint64_t kEachBin = 2 * heaps::kWord;

  static bool may_have_been_chunk(const Word& word) {
    return word.value != word.target && heaps::glibc::is_chunk_aligned(word.value);
  }

  // Returns whether a size is ahead of the word and the other link.
  bool is_in_chunk(const Word& word) const {
    uint64_t before = word.slot - heaps::kWord, after = word.slot + heaps::kWord;
    bool is_last = after + heaps::kWord > blocks_.end_of(word.owner);
    return (!is_last && follows_size(word.owner, word.slot) &&
            leads_elsewhere(heaps::word(after), word.target)) ||
           (follows_size(word.owner, before) && leads_elsewhere(heaps::word(before), word.target));
  }

  static bool follows_size(uint64_t owner, uint64_t slot) {
    constexpr uint64_t kMostBytes = 1 << 30;
    if (slot <= owner) return false;
    uint64_t size = heaps::glibc::chunk_size(slot - heaps::glibc::kHeader);
    return size % heaps::glibc::kChunkAlignment == 0 && size >= heaps::glibc::kMinChunk &&
           size <= kMostBytes;
  }

  // Returns whether it is a link that leads to another block, or a bin. Two words may be the place
  // where an array continues and its end.
  bool leads_elsewhere(uint64_t value, uint64_t block) const {
    return blocks_.is_link(value) ? blocks_.block_of(value) != block : is_bin(value);
  }

  bool leads_back(uint64_t bin) const {
    constexpr uint64_t kForward = 2 * heaps::kWord, kBack = 3 * heaps::kWord;
    return leads_back(bin, kForward, kBack) && leads_back(bin, kBack, kForward);
  }
  bool leads_back(uint64_t bin, uint64_t there, uint64_t back) const {
    if (!space_.readable(bin + there, heaps::kWord)) return false;
    uint64_t chunk = heaps::word(bin + there);
    return space_.readable(chunk + back, heaps::kWord) && heaps::word(chunk + back) == bin;
  }

  const heaps::Space& space_;
  const BlockMap& blocks_;
};

}  // namespace reachscan::sweeper
