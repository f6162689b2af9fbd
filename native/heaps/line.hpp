// First in, first out, with a fixed capacity in memory that is backed only where it is used.
#pragma once

#include "heaps/list.hpp"

namespace reachscan::heaps {

class Line {
 public:
  Line(MapMemory map, std::uint64_t capacity)
      : items_(static_cast<std::uint64_t*>(map(capacity * sizeof(std::uint64_t)))),
        capacity_(capacity) {}

  std::uint64_t size() const { return size_; }

  // False when full.
  bool put(std::uint64_t item) {
    if (size_ == capacity_) return false;
    std::uint64_t last = first_ + size_++;
    items_[last < capacity_ ? last : last - capacity_] = item;
    return true;
  }

  // Which is the next one. There must be one, as for the other.
  std::uint64_t next() const { return items_[first_]; }

  std::uint64_t take() {
    std::uint64_t item = items_[first_++];
    if (first_ == capacity_) first_ = 0;
    --size_;
    return item;
  }

 private:
  std::uint64_t* items_;
  std::uint64_t capacity_;
  std::uint64_t first_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace reachscan::heaps
