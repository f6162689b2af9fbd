// The pointers that one marker has found, sorted by bucket of the heap: one box of a cache line per
// bucket.
//
// A lookup in the bitmaps of a large heap waits for memory. So pointers are not looked up one by
// one but together with others into the same bucket, when its box is full or when it is the
// bucket's turn. The blocks that they point to are then marked grey: their scan is deferred.
#pragma once

#include <utility>

#include "memory/cluster_cache.hpp"
#include "sweeper/mark/bucket_line.hpp"
#include "sweeper/mark/shared_worklist.hpp"

namespace reachscan::sweeper {

class MarkBuckets {
 public:
  MarkBuckets(BlockMap& blocks, SharedWorklist& worklist, BucketAccess& access)
      : blocks_(blocks),
        worklist_(worklist),
        access_(access),
        near_(blocks),
        boxes_(blocks.buckets()),
        line_(blocks) {}

  // The number of values in all boxes.
  uint64_t values() const { return values_; }

  void add(const uint64_t* values, uint64_t count) {
    each_group(values, count, [this](const heaps::Cluster& cluster, uint64_t value) {
      add(cluster, boxes_[cluster.bucket_of(value)], value);
    });
  }

  // Returns how many blocks have been marked since the last call.
  uint64_t take_marked() { return std::exchange(marked_, 0); }

  bool has_next() const { return line_.size() != 0; }

  // Takes the next buckets as long as each has only a few values, at most `most` in all, and calls
  // visit(cluster, value) for these.
  template <typename Visit>
  void take_few(unsigned most, Visit visit) {
    for (; line_.size() != 0 && most >= kFew; line_.take()) {
      uint64_t bucket = line_.next();
      const heaps::Cluster& cluster = *near_.of(bucket);
      Box& box = boxes_[cluster.bucket_of(bucket)];
      if (!has_few(box)) return;
      for (unsigned i = 0; i < box.count; ++i) visit(cluster, bucket + box.offsets[i]);
      most -= box.count;
      empty(box);
      box.state = kIdle;
    }
  }

  // Returns the start of the next bucket, whose box is now empty; 0 if there is none.
  uint64_t next() {
    if (line_.size() == 0) look_up_aside();
    if (line_.size() == 0) return 0;
    uint64_t bucket = line_.take();
    const heaps::Cluster& cluster = *near_.of(bucket);
    Box& box = boxes_[cluster.bucket_of(bucket)];
    fetch_bitmaps(cluster, bucket);
    look_up(cluster, box, bucket);
    box.state = kIdle;
    if (line_.size() != 0) fetch_bucket(line_.next());
    return bucket;
  }

 private:
  static constexpr std::ptrdiff_t kGroup = 64;
  static constexpr uint64_t kSpansInLine = heaps::kLine / sizeof(uint64_t);

  // So few values are looked up one by one more quickly than what a turn starts with is fetched.
  static constexpr unsigned kFew = 24;

  // The state of a bucket. If its box holds values it is queued, as it is if blocks in it are grey.
  enum State : uint8_t { kIdle, kUninhabited, kQueued, kQueuedWithGrey };

  struct Box {
    static constexpr unsigned kMax = heaps::kFine ? 63 : 31;
    State state;
    uint8_t count;
    uint16_t offsets[kMax];  // of values, from the start of the bucket
  };
  static_assert(kBucket == 1 << 16 && sizeof(Box) == (heaps::kFine ? 128 : 64));

  // A full box that waits to be looked up.
  static constexpr unsigned kAside = 4;
  struct Full {
    uint64_t bucket;  // 0: none
    const heaps::Cluster* cluster;
    Box box;
  };

  // Calls visit(cluster, value) for the values that are in a cluster, after prefetching their
  // boxes.
  template <typename Visit>
  [[gnu::always_inline]] void each_group(const uint64_t* values, uint64_t count, Visit visit) {
    for (const uint64_t *group = values, *end = values + count; group != end;) {
      const uint64_t* group_end = end - group < kGroup ? end : group + kGroup;
      const heaps::Cluster& near = near_.last();
      for (const uint64_t* value = group; value != group_end; ++value)
        if (near.covers(*value)) heaps::fetch(&boxes_[near.bucket_of(*value)]);
      for (; group != group_end; ++group)
        if (const heaps::Cluster* cluster = near_.of(*group)) visit(*cluster, *group);
    }
  }

  [[gnu::always_inline]] void add(const heaps::Cluster& cluster, Box& box, uint64_t value) {
    if (box.state < kQueued && !enqueue(cluster, box, value)) return;
    box.offsets[box.count++] = static_cast<uint16_t>(value);
    ++values_;
    if (box.count == Box::kMax) set_aside(cluster, box, value & ~(kBucket - 1));
  }

  // Returns false if no block can be there.
  [[gnu::noinline]] bool enqueue(const heaps::Cluster& cluster, Box& box, uint64_t address) {
    if (box.state == kIdle) {
      box.state = cluster.is_inhabited(address) ? kQueued : kUninhabited;
      if (box.state == kQueued) line_.put(address & ~(kBucket - 1));
    }
    return box.state >= kQueued;
  }

  static bool has_few(const Box& box) { return box.state == kQueued && box.count <= kFew; }

  void empty(Box& box) {
    values_ -= box.count;
    box.count = 0;
  }

  // Fetches what its turn starts with: its bitmaps, and the translations of its pages.
  void fetch_bucket(uint64_t bucket) {
    const heaps::Cluster& cluster = *near_.of(bucket);
    if (has_few(boxes_[cluster.bucket_of(bucket)])) return;
    fetch_bitmaps(cluster, bucket);
    // Lines at the same offset of several pages would compete for a place in the cache.
    for (uint64_t page = bucket; page < bucket + kBucket; page += heaps::kPage + heaps::kLine)
      heaps::fetch_to_l2(page);
  }

  void fetch_bitmaps(const heaps::Cluster& cluster, uint64_t bucket) {
    if (blocks_.has_blanks())
      for (uint64_t base = bucket; base < bucket + kBucket; base += kSpansInLine * heaps::kSpan)
        heaps::fetch(cluster.blanks_at(base));
    fetch_pairs(cluster, bucket);
  }

  // Fetches what values are looked up in.
  void fetch_pairs(const heaps::Cluster& cluster, uint64_t bucket) {
    access_.fetch(cluster.bucket_of(bucket));
    for (uint64_t base = bucket; base < bucket + kBucket;
         base += heaps::kPairsInLine * heaps::kSpan)
      heaps::fetch(cluster.pair(base));
    if constexpr (heaps::kFine)
      for (uint64_t base = bucket; base < bucket + kBucket; base += 16 * heaps::kSpan)
        heaps::fetch(cluster.greys_at(base));
  }

  // Empties a full box. Its values are looked up once the bitmaps have had time to arrive.
  [[gnu::noinline]] void set_aside(const heaps::Cluster& cluster, Box& box, uint64_t bucket) {
    Full& full = aside_[next_aside_++ % kAside];
    if (full.bucket != 0) look_up_full(full);
    full.cluster = &cluster;
    full.bucket = bucket;
    full.box = box;
    box.count = 0;
    fetch_pairs(cluster, bucket);
  }

  void look_up_aside() {
    for (Full& full : aside_)
      if (full.bucket != 0) look_up_full(full);
  }

  void look_up_full(Full& full) {
    look_up(*full.cluster, full.box, full.bucket);
    full.bucket = 0;
  }

  // Looks up the values of a box and empties it.
  void look_up(const heaps::Cluster& cluster, Box& box, uint64_t bucket) {
    uint64_t across[Box::kMax];
    unsigned count = 0;
    unsigned greys = 0;
    {
      const auto access = access_.to(cluster.bucket_of(bucket));
      for (unsigned i = 0; i < box.count; ++i) {
        uint64_t start = worklist_.block_in(cluster, bucket + box.offsets[i]);
        if (start == 0) continue;
        if (is_across(start, bucket)) {
          across[count++] = start;
        } else {
          greys += heaps::make_grey(cluster, start);
        }
      }
    }
    // The bucket may have had its turn after its box was set aside.
    if (greys != 0) enqueue_grey(cluster, bucket);
    marked_ += greys;
    for (unsigned i = 0; i < count; ++i) look_up_across(cluster, across[i]);
    empty(box);
  }

  // Returns whether a block starts before a bucket, or is noted as grey behind it.
  static bool is_across(uint64_t start, uint64_t bucket) {
    return start - bucket >= kBucket - heaps::note_of(0);
  }

  void look_up_across(const heaps::Cluster& cluster, uint64_t start) {
    {
      const auto access = access_.to(cluster.bucket_of(start));
      if (!blocks_.mark_in(cluster, start)) return;
    }
    uint64_t noted = heaps::note_of(start);
    {
      const auto access = access_.to(cluster.bucket_of(noted));
      heaps::note_grey(cluster, start);
    }
    enqueue_grey(cluster, noted);
    ++marked_;
  }

  void enqueue_grey(const heaps::Cluster& cluster, uint64_t address) {
    Box& box = boxes_[cluster.bucket_of(address)];
    if (box.state >= kQueued || enqueue(cluster, box, address)) box.state = kQueuedWithGrey;
  }

  BlockMap& blocks_;
  SharedWorklist& worklist_;
  BucketAccess& access_;
  heaps::ClusterCache near_;
  Scratch<Box> boxes_;
  BucketQueue line_;
  uint64_t values_ = 0;
  uint64_t marked_ = 0;
  Full aside_[kAside] = {};
  unsigned next_aside_ = 0;
};

}  // namespace reachscan::sweeper
