// The stretches of address space that heaps can be in: all anonymous memory, with small gaps.
#pragma once

#include "memory/cluster.hpp"

namespace reachscan::heaps {

// What Clusters::hulls() gives.
struct Hulls {
  Range low;
  Range high;
};

class Clusters {
 public:
  explicit Clusters(const Space& space) {
    for (const abi::Mapping& m : space)
      if (Space::is_anonymous(m)) extend(m.start, m.end);
  }

  // Null if none covers the address.
  const Cluster* of(uint64_t address) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (clusters_[i].covers(address)) return &clusters_[i];
    return nullptr;
  }

  Range hull() const { return count_ == 0 ? Range{0, 0} : hull_of(0, count_); }

  // The same as two ranges, with the widest gap left out. If there is no gap, both are the hull.
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

  Cluster* begin() { return clusters_; }
  Cluster* end() { return clusters_ + count_; }

 private:
  static constexpr uint64_t kGap = 1ull << 38;
  static constexpr std::size_t kMost = 8;

  Range hull_of(std::size_t first, std::size_t end) const {
    const Cluster& last = clusters_[end - 1];
    return {clusters_[first].start, last.start + last.length};
  }

  // Mappings come in order, so only the last cluster can grow.
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
    clusters_[count_].start = start;
    clusters_[count_++].length = end - start;
  }

  Cluster clusters_[kMost] = {};
  std::size_t count_ = 0;
};

}  // namespace reachscan::heaps
