// Orders the leaked blocks: each head of a leaked structure, followed by all that hangs below it.
//
// A head is a block that no other leaked structure points into; of a ring with no way in, one
// member is the head. Two depth-first passes find them: the first notes where it had to start anew;
// the second goes through those starts backwards. A start that something else reaches is reached
// from a later start (had the reaching block been started earlier, this one would not have been a
// start), so what the second pass still finds unmarked is a head: exactly one for each structure.
#pragma once

#include "sweeper/emit.hpp"
#include "sweeper/types.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::List;
using heaps::Totals;

// Sends leaks in batches of columns.
class LeakWriter {
 public:
  explicit LeakWriter(const heaps::Space& space) : types_(space) {}

  // Returns the leak's position in the stream.
  uint32_t add(uint64_t address, uint64_t size, uint32_t parent) {
    if (count_ == kBatch) flush();
    address_[count_] = address;
    size_[count_] = size;
    parent_[count_] = parent;
    for (unsigned i = 0; i < wire::kLeadWords; ++i)
      words_[count_][i] = 8 * (i + 1) <= size ? heaps::word(address + 8 * i) : 0;
    if (size >= 8) types_.note(words_[count_][0]);
    ++count_;
    leaks.add(size);
    if (parent == wire::kDirect) {
      direct.add(size);
      add_contents(address, size);
    }
    return static_cast<uint32_t>(leaks.blocks - 1);
  }

  void finish() {
    flush();
    types_.send();
  }

  Totals leaks;
  Totals direct;

 private:
  static constexpr std::size_t kBatch = 2048;
  static constexpr std::size_t kMaxContents = 4096;  // direct leaks whose contents travel in full

  void flush() {
    if (count_ == 0) return;
    Record record(wire::kLeaks);
    record.u32(static_cast<uint32_t>(count_)).u32(wire::kLeadWords);
    record.raw(address_, count_ * sizeof address_[0]).raw(size_, count_ * sizeof size_[0]);
    record.raw(parent_, count_ * sizeof parent_[0]).raw(words_, count_ * sizeof words_[0]);
    record.send();
    count_ = 0;
  }

  // Only what the leading words do not show already. Sent behind the batch that holds the leak.
  void add_contents(uint64_t address, uint64_t size) {
    uint64_t length = control()->contents_bytes < size ? control()->contents_bytes : size;
    if (length <= 8 * wire::kLeadWords || direct.blocks > kMaxContents) return;
    auto position = static_cast<uint32_t>(leaks.blocks - 1);
    flush();
    Record record(wire::kContents);
    record.u32(1).u32(position).u32(static_cast<uint32_t>(length));
    record.raw(reinterpret_cast<const void*>(address), length);
    record.send();
  }

  TypeNames types_;
  std::size_t count_ = 0;
  uint64_t address_[kBatch];
  uint64_t size_[kBatch];
  uint32_t parent_[kBatch];
  uint64_t words_[kBatch][wire::kLeadWords];
};

// Everything that `start` reaches among unmarked blocks; visit(block, parent) is called when a
// block is first reached and returns what its children get as their parent.
class Explorer {
 public:
  Explorer(BlockMap& blocks, std::size_t capacity) : blocks_(blocks), open_(map_memory, capacity) {}

  template <typename Visit>
  void explore(uint64_t start, Visit visit) {
    if (blocks_.mark(start) == 0) return;
    open_.push({start, visit(start, wire::kDirect), 0});
    while (!open_.empty()) {
      Item item = open_.pop();
      uint64_t end = blocks_.end_of(item.block);
      for (uint64_t at = item.block; at + 8 <= end; at += 8) {
        uint64_t value = heaps::word(at);
        if (!blocks_.may_point(value)) continue;
        if (uint64_t child = blocks_.mark(value)) open_.push({child, visit(child, item.id), 0});
      }
    }
  }

 private:
  struct Item {
    uint64_t block;
    uint32_t id;  // what visit() returned for it
    uint32_t reserved;
  };

  BlockMap& blocks_;
  List<Item> open_;  // each block is in it once, so it holds all leaks at most
};

inline bool starts_with_vtable(const heaps::Space& space, uint64_t block) {
  return in_constant_data(space, heaps::word(block));
}

inline void collect_leaks(const heaps::Space& space, BlockMap& blocks, LeakWriter& writer) {
  std::size_t count = 0;
  blocks.each_unmarked([&](uint64_t) { ++count; });
  if (count == 0) return;
  List<uint64_t> leaked(map_memory, count), starts(map_memory, count);
  blocks.each_unmarked([&](uint64_t block) { leaked.push(block); });

  Explorer explorer(blocks, count);
  // Which member of a ring the first pass meets first is its head: an object with a class says
  // most.
  for (bool with_class : {true, false}) {
    for (uint64_t block : leaked) {
      if (blocks.is_marked(block) || (with_class && !starts_with_vtable(space, block))) continue;
      starts.push(block);
      explorer.explore(block, [](uint64_t, uint32_t) { return 0u; });
    }
  }
  for (uint64_t block : leaked) blocks.clear_mark(block);
  while (!starts.empty())
    explorer.explore(starts.pop(), [&](uint64_t block, uint32_t parent) {
      return writer.add(block, blocks.end_of(block) - block, parent);
    });
}

}  // namespace reachscan::sweeper
