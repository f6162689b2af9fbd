// A list of fixed capacity in memory that is backed only where it is used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/partition_point.hpp"

namespace reachscan::heaps {

// Returns zeroed, lazily backed memory. Does not return if there is none.
using MapMemory = void* (*)(std::uint64_t bytes);

template <typename T>
class List {
 public:
  List() = default;
  List(MapMemory map, std::size_t capacity)
      : items_(static_cast<T*>(map(capacity * sizeof(T)))), capacity_(capacity) {}

  // False when full.
  bool push(const T& item) {
    if (size_ == capacity_) return false;
    items_[size_++] = item;
    return true;
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  void clear() { size_ = 0; }
  T pop() { return items_[--size_]; }
  T& operator[](std::size_t index) { return items_[index]; }
  const T& operator[](std::size_t index) const { return items_[index]; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + size_; }

 private:
  T* items_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

// Heapsort: no recursion, no extra memory, no library.
template <typename T, typename Less>
void sort(T* list, std::size_t size, Less less) {
  auto sift = [&](std::size_t root, std::size_t count) {
    for (std::size_t child; (child = 2 * root + 1) < count; root = child) {
      if (child + 1 < count && less(list[child], list[child + 1])) ++child;
      if (!less(list[root], list[child])) return;
      T held = list[root];
      list[root] = list[child];
      list[child] = held;
    }
  };
  for (std::size_t i = size / 2; i-- > 0;) sift(i, size);
  for (std::size_t last = size; last-- > 1;) {
    T held = list[0];
    list[0] = list[last];
    list[last] = held;
    sift(0, last);
  }
}

template <typename T, typename Less>
void sort(List<T>& list, Less less) {
  sort(list.begin(), list.size(), less);
}

template <typename T>
void sort(List<T>& list) {
  sort(list, [](const T& a, const T& b) { return a < b; });
}

// Removes the elements of a sorted list that are the same as the one before.
template <typename T, typename Same>
void remove_repeats(List<T>& sorted, Same same) {
  std::size_t kept = 0;
  for (const T& item : sorted)
    if (kept == 0 || !same(sorted[kept - 1], item)) sorted[kept++] = item;
  while (sorted.size() > kept) sorted.pop();
}

template <typename T>
void remove_repeats(List<T>& sorted) {
  remove_repeats(sorted, [](const T& a, const T& b) { return a == b; });
}

// Returns the position of the first element that is not less than `value`, in an ascending list.
template <typename T, typename Less>
std::size_t lower_bound(const List<T>& sorted, const T& value, Less less) {
  return partition_point(sorted.size(), [&](std::size_t i) { return less(sorted[i], value); });
}

template <typename T>
std::size_t lower_bound(const List<T>& sorted, const T& value) {
  return lower_bound(sorted, value, [](const T& a, const T& b) { return a < b; });
}

}  // namespace reachscan::heaps
