// What one marker has found, sorted by tracts of the heap: an inbox of one cache line for each.
//
// A look at the bitmaps of a large heap waits for the memory. So values are not looked up one by
// one, but together with those that point to the same tract: when its inbox is full, or when it is
// its turn. What they point to is then marked, and its scan put off.
#pragma once

#include "heaps/near_cluster.hpp"
#include "sweeper/team.hpp"

namespace reachscan::sweeper {

class Inboxes {
 public:
  explicit Inboxes(BlockMap& blocks)
      : blocks_(blocks),
        near_(blocks),
        boxes_(static_cast<Box*>(map_memory(blocks.tracts() * sizeof(Box)))),
        line_(blocks) {}

  // How many values there are in the inboxes, and how many tracts wait for their turn.
  uint64_t values() const { return values_; }
  uint64_t tracts() const { return line_.size(); }

  template <bool kShared>
  void add(const uint64_t* values, uint64_t count) {
    for (uint64_t i = 0; i < count; i += kGroup)
      add_group<kShared>(values + i, count - i < kGroup ? count - i : kGroup);
  }

  // Whose turn it is: the start of a tract whose inbox is now empty. 0 if there is none.
  template <bool kShared>
  uint64_t next() {
    if (line_.size() == 0) return 0;
    uint64_t tract = line_.take();
    const heaps::Cluster& cluster = *near_.of(tract);
    Box& box = boxes_[cluster.tract_of(tract)];
    box.state = kAtRest;
    look_up<kShared>(cluster, box, tract);
    if (line_.size() != 0) fetch_tract(line_.next());
    return tract;
  }

 private:
  static constexpr uint64_t kGroup = 64;

  // Of a tract. A box that has values is in line.
  enum State : uint8_t { kAtRest, kInLine, kUninhabited };

  struct Box {
    static constexpr unsigned kMost = 31;
    State state;
    uint8_t count;
    uint16_t offsets[kMost];  // of values, from the start of the tract
  };
  static_assert(kTract == 1 << 16 && sizeof(Box) == 64);

  template <bool kShared>
  void add_group(const uint64_t* values, uint64_t count) {
    const heaps::Cluster& near = near_.last();
    for (uint64_t i = 0; i < count; ++i)
      if (near.covers(values[i])) __builtin_prefetch(&boxes_[near.tract_of(values[i])], 1);
    for (uint64_t i = 0; i < count; ++i)
      if (const heaps::Cluster* cluster = near_.of(values[i])) add<kShared>(*cluster, values[i]);
  }

  template <bool kShared>
  [[gnu::always_inline]] void add(const heaps::Cluster& cluster, uint64_t value) {
    Box& box = boxes_[cluster.tract_of(value)];
    if (box.state != kInLine && !put_in_line(cluster, box, value)) return;
    box.offsets[box.count++] = static_cast<uint16_t>(value);
    ++values_;
    if (box.count == Box::kMost) look_up<kShared>(cluster, box, value & ~(kTract - 1));
  }

  // False: no block can be there.
  [[gnu::noinline]] bool put_in_line(const heaps::Cluster& cluster, Box& box, uint64_t address) {
    if (box.state == kAtRest) {
      box.state = cluster.is_inhabited(address) ? kInLine : kUninhabited;
      if (box.state == kInLine) line_.put(address & ~(kTract - 1));
    }
    return box.state == kInLine;
  }

  // What its turn begins with: its bitmaps, and the way to its pages.
  void fetch_tract(uint64_t tract) {
    fetch_bitmaps(*near_.of(tract), tract);
    for (uint64_t page = tract; page < tract + kTract; page += heaps::kPage)
      __builtin_prefetch(reinterpret_cast<const void*>(page));
  }

  static void fetch_bitmaps(const heaps::Cluster& cluster, uint64_t tract) {
    for (uint64_t base = tract; base < tract + kTract; base += heaps::kPairsInLine * heaps::kSpan)
      __builtin_prefetch(cluster.pair(base));
  }

  // Empties a box.
  template <bool kShared>
  [[gnu::noinline]] void look_up(const heaps::Cluster& cluster, Box& box, uint64_t tract) {
    fetch_bitmaps(cluster, tract);
    for (unsigned i = 0; i < box.count; ++i) {
      uint64_t noted = blocks_.put_off<kShared>(cluster, tract + box.offsets[i]);
      // A block that begins before this tract, or whose first granule is the last one of it.
      if (noted != 0 && noted - tract >= kTract)
        put_in_line(cluster, boxes_[cluster.tract_of(noted)], noted);
    }
    values_ -= box.count;
    box.count = 0;
  }

  BlockMap& blocks_;
  heaps::NearCluster near_;
  Box* boxes_;
  TractLine line_;
  uint64_t values_ = 0;
};

}  // namespace reachscan::sweeper
