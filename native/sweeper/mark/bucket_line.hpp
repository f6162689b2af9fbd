// A FIFO queue of buckets, each queued at most once, in memory that is backed only where it is
// used.
#pragma once

#include "memory/block_map.hpp"
#include "sweeper/mark/scratch.hpp"

namespace reachscan::sweeper {

class BucketQueue {
 public:
  explicit BucketQueue(const heaps::BlockMap& blocks)
      : capacity_(blocks.inhabited_buckets() + 1), buckets_(capacity_) {}

  uint64_t size() const { return size_; }

  // Refuses when full: losing a bucket would turn blocks into leaks.
  void put(uint64_t start) {
    if (size_ == capacity_)
      refuse(abi::Refusal::kNoMemory, "more of the heap waits to be scanned than there is", start);
    uint64_t last = first_ + size_++;
    buckets_[last < capacity_ ? last : last - capacity_] = start;
  }

  // Returns the next bucket. There must be one, as for take().
  uint64_t next() const { return buckets_[first_]; }

  uint64_t take() {
    uint64_t start = buckets_[first_++];
    if (first_ == capacity_) first_ = 0;
    --size_;
    return start;
  }

 private:
  uint64_t capacity_;
  Scratch<uint64_t> buckets_;
  uint64_t first_ = 0;
  uint64_t size_ = 0;
};

}  // namespace reachscan::sweeper
