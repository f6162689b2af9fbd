// Where blocks may be: mappings far apart have bitmaps of their own.
#pragma once

#include "memory/cluster.hpp"

namespace reachscan::heaps {

// The result of Clusters::hulls().
struct Hulls {
  Range low;
  Range high;
};

class Clusters {
 public:
  // Adds a mapping, in the order of addresses: only the last cluster can grow.
  void extend(uint64_t start, uint64_t end) {
    start &= ~(kBucket - 1);
    end = align_up(end, kBucket);
    if (count_ > 0) {
      Cluster& last = clusters_[count_ - 1];
      bool near = start - (last.start + last.length) < kGap || start < last.start + last.length;
      if (near || count_ == kMost) {
        last.length = end - last.start;
        return;
      }
    }
    clusters_[count_++] = {start, end - start, 0, nullptr, nullptr, nullptr, nullptr};
  }

  // Called once, after all calls of extend().
  void allocate(MapMemory map) {
    for (std::size_t i = 0; i < count_; ++i) {
      clusters_[i].first_bucket = buckets_;
      buckets_ += clusters_[i].length / kBucket + 1;
      clusters_[i].allocate(map);
    }
  }

  uint64_t buckets() const { return buckets_; }

  // Returns the bitmaps that cover `address`, or null if no heap can contain it. This is a search:
  // look the cluster up once and pass it on.
  const Cluster* of(uint64_t address) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (clusters_[i].covers(address)) return &clusters_[i];
    return nullptr;
  }

  // Contains all clusters: two comparisons reject most words.
  Range hull() const { return count_ == 0 ? Range{0, 0} : hull_of(0, count_); }

  // The same as two ranges, split at the widest gap, for scans in which many words fall inside the
  // hull. If there is no gap, both are the hull.
  Hulls hulls() const {
    std::size_t split = 0;
    uint64_t widest = 0;
    for (std::size_t i = 1; i < count_; ++i) {
      uint64_t gap = clusters_[i].start - (clusters_[i - 1].start + clusters_[i - 1].length);
      if (gap <= widest) continue;
      widest = gap;
      split = i;
    }
    if (split == 0) return {hull(), hull()};
    return {hull_of(0, split), hull_of(split, count_)};
  }

 private:
  static constexpr uint64_t kGap = 1ull << 38;
  static constexpr std::size_t kMost = 8;

  Range hull_of(std::size_t first, std::size_t end) const {
    const Cluster& last = clusters_[end - 1];
    return {clusters_[first].start, last.start + last.length};
  }

  Cluster clusters_[kMost] = {};
  std::size_t count_ = 0;
  uint64_t buckets_ = 0;
};

}  // namespace reachscan::heaps
