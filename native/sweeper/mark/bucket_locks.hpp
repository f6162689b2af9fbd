// Which marker may change the marks of a bucket.
//
// A lock for a whole box of values costs less than an atomic instruction for each of them. A marker
// that works alone needs none.
#pragma once

#include <optional>

#include "sweeper/mark/scratch.hpp"
#include "sweeper/mark/spin_lock.hpp"

namespace reachscan::sweeper {

// A lock for each bucket, in a cache line of its own.
class BucketLocks {
 public:
  explicit BucketLocks(uint64_t buckets) : lines_(buckets) {}

  SpinLock& of(uint64_t bucket) { return lines_[bucket].lock; }

 private:
  struct alignas(64) Line {
    SpinLock lock;
  };

  Scratch<Line> lines_;
};

// One marker's access to them.
class BucketAccess {
 public:
  explicit BucketAccess(BucketLocks& locks) : locks_(locks) {}

  // Whether no other marker changes marks.
  bool alone() const { return alone_; }
  void set_alone(bool alone) { alone_ = alone; }

  // Prefetches what to() will write.
  void fetch(uint64_t bucket) const {
    if (!alone_) heaps::fetch(&locks_.of(bucket));
  }

  // Allows changes in a bucket as long as the result exists. No other one may be held.
  [[nodiscard]] std::optional<SpinLock::Guard> to(uint64_t bucket) {
    if (alone_) return std::nullopt;
    return std::optional<SpinLock::Guard>(std::in_place, locks_.of(bucket));
  }

 private:
  BucketLocks& locks_;
  bool alone_ = true;
};

}  // namespace reachscan::sweeper
