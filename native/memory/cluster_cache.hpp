// Finds the bitmaps for a sequence of values. Most values fall into the same cluster as the last
// one.
#pragma once

#include "memory/block_map.hpp"

namespace reachscan::heaps {

class ClusterCache {
 public:
  explicit ClusterCache(const BlockMap& blocks) : blocks_(blocks), near_(&kNowhere) {}
  ClusterCache(const ClusterCache&) = delete;
  ClusterCache& operator=(const ClusterCache&) = delete;

  // Returns null if the value cannot be a pointer into a heap.
  [[gnu::always_inline]] const Cluster* of(uint64_t value) {
    if (near_->covers(value)) return near_;
    const Cluster* cluster = blocks_.cluster_of(value);
    if (cluster != nullptr) near_ = cluster;
    return cluster;
  }

  // The cluster found last; initially one that covers nothing.
  const Cluster& last() const { return *near_; }

 private:
  const BlockMap& blocks_;
  const Cluster kNowhere{};
  const Cluster* near_;
};

}  // namespace reachscan::heaps
