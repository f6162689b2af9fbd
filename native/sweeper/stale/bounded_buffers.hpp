// Buffers whose first words tell which part of them is in use: arrays of Qt (qt_arrays.hpp), and
// large blocks that begin with the start and the end of what they hold (llvm::MemoryBuffer):
//
//   a word | start | end | name | contents | what was there before
//
// The last was not requested, but added by rounding the size up.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/stale/qt_arrays.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class BoundedBuffers {
 public:
  BoundedBuffers(const heaps::BlockMap& blocks, Targets& targets)
      : blocks_(blocks), targets_(targets) {}

  // Adds what the unused words of a marked block lead to. Thread-safe.
  void look_at(heaps::Range block) {
    auto contents = contents_of(block);
    if (!contents) return;
    targets_.add_unused(block.start, {contents->start, contents->used.start});
    targets_.add_unused(block.start, {contents->used.end, block.end});
  }

  // Returns whether the word is in an item of an array of Qt.
  bool is_in_item(uint64_t owner, uint64_t slot) const {
    auto items = QtArray(blocks_.range_of(owner)).contents();
    return items && items->used.contains(slot);
  }

  // Returns whether the word is in a part that is not in use.
  bool has_unused(uint64_t owner, uint64_t slot) const {
    auto contents = contents_of(blocks_.range_of(owner));
    return contents && slot >= contents->start && !contents->used.contains(slot);
  }

 private:
  static std::optional<Contents> contents_of(heaps::Range block) {
    auto items = QtArray(block).contents();
    return items ? items : between_ends(block);
  }

  // In smaller objects, other fields may follow a part with contents.
  static constexpr uint64_t kLeastBytes = 512;
  static constexpr uint64_t kMostBefore = 256;  // the contents

  static std::optional<Contents> between_ends(heaps::Range block) {
    if (block.end - block.start <= kLeastBytes) return {};
    uint64_t start = heaps::word(block.start + heaps::kWord);
    uint64_t end = heaps::word(block.start + 2 * heaps::kWord);
    bool is_buffer = start > block.start && start - block.start <= kMostBefore && end > start &&
                     heaps::may_hold_request(block.end - block.start, end - block.start);
    if (!is_buffer) return {};
    return Contents{start, {start, end}};
  }

  const heaps::BlockMap& blocks_;
  Targets& targets_;
};

}  // namespace reachscan::sweeper
