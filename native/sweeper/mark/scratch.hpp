// An array in memory of its own: initially zero, backed only where it is used, and unmapped at the
// end.
#pragma once

#include "sweeper/blob/host.hpp"

namespace reachscan::sweeper {

template <typename T>
class Scratch {
 public:
  explicit Scratch(uint64_t count)
      : bytes_(count * sizeof(T)),
        items_(bytes_ == 0 ? nullptr : static_cast<T*>(map_memory(bytes_))) {}
  ~Scratch() {
    if (bytes_ != 0) unmap_memory(items_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* get() { return items_; }
  const T* get() const { return items_; }
  T& operator[](uint64_t index) { return items_[index]; }
  const T& operator[](uint64_t index) const { return items_[index]; }

 private:
  uint64_t bytes_;
  T* items_;
};

}  // namespace reachscan::sweeper
