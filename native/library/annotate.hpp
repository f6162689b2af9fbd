// Writes the table of annotations (annotations.hpp). Any thread may do so at any time, even in a
// signal handler: nothing here takes a lock or heap memory.
#pragma once

#include <cstddef>

#include "library/annotations.hpp"

namespace reachscan::library {

// Returns false if there is no room; errno adds nothing to ENOMEM.
bool annotate(Kind kind, const void* start, std::size_t size);

// Removes all such entries. Returns whether there was one.
bool forget(Kind kind, const void* start);

// Returns whether anything was ever annotated: until then no lookup is necessary.
bool has_annotations(Kind kind);

// Announces that the malloc of the file with this code allocates through the next one.
void announce_malloc(const void* code);

// Returns whole zeroed pages that scans do not search; null if there is no memory.
void* map_unseen(std::size_t bytes, Kind kind = Kind::kUnseen);
void unmap_unseen(void* memory, std::size_t bytes, Kind kind = Kind::kUnseen);

// A growing array in such memory.
template <typename T>
class UnseenArray {
 public:
  UnseenArray() = default;
  UnseenArray(const UnseenArray&) = delete;
  UnseenArray& operator=(const UnseenArray&) = delete;
  ~UnseenArray() {
    if (items_ != nullptr) unmap_unseen(items_, capacity_ * sizeof(T));
  }

  bool push(const T& item) {
    if (size_ == capacity_ && !reserve(capacity_ == 0 ? 1024 : 2 * capacity_)) return false;
    items_[size_++] = item;
    return true;
  }

  bool reserve(std::size_t capacity) {
    if (capacity <= capacity_) return true;
    auto* more = static_cast<T*>(map_unseen(capacity * sizeof(T)));
    if (more == nullptr) return false;
    for (std::size_t i = 0; i < size_; ++i) more[i] = items_[i];
    if (items_ != nullptr) unmap_unseen(items_, capacity_ * sizeof(T));
    items_ = more;
    capacity_ = capacity;
    return true;
  }

  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  T& back() { return items_[size_ - 1]; }
  T& operator[](std::size_t i) { return items_[i]; }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }

 private:
  T* items_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace reachscan::library
