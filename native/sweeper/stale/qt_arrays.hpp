// Arrays of Qt 5, which begin with numbers that tell where their items are and how many of them are
// in use:
//
//   references, size | capacity | offset of the items | items        QString, QByteArray, QVector
//   references, capacity | begin, end | items                        QList
//
// The layouts are from qarraydata.h and qlist.h. The numbers have 32 bits, but for the offset.
#pragma once

#include <optional>

#include "memory/rounding.hpp"

namespace reachscan::sweeper {

// The part of a buffer that may hold something, and what of it does.
struct Contents {
  uint64_t start;
  heaps::Range used;
};

class QtArray {
 public:
  explicit QtArray(heaps::Range block) : block_(block), bytes_(block.end - block.start) {}

  // Returns nothing if the block is no such array.
  [[gnu::noinline]] std::optional<Contents> contents() const {
    if (bytes_ < kListHeader + heaps::kWord || !has_references()) return {};
    if (auto items = list_items()) return items;
    return array_items();
  }

 private:
  static constexpr uint64_t kListHeader = 4 * sizeof(uint32_t);
  static constexpr uint64_t kArrayHeader =
      heaps::align_up(3 * sizeof(uint32_t), heaps::kWord) + heaps::kWord;
  static constexpr uint32_t kMostReferences = 1 << 20;
  static constexpr uint32_t kCapacityBits = ~0u >> 1;  // the other one: it has been reserved

  uint32_t number(unsigned index) const {
    return heaps::load<uint32_t>(block_.start + index * sizeof(uint32_t));
  }

  bool has_references() const { return number(0) - 1 < kMostReferences; }

  // An empty list has little that other blocks have not.
  std::optional<Contents> list_items() const {
    uint64_t capacity = number(1), begin = number(2), end = number(3);
    bool is_list = begin < end && end <= capacity &&
                   heaps::may_hold_request(bytes_, kListHeader + capacity * heaps::kWord);
    if (!is_list) return {};
    uint64_t items = block_.start + kListHeader;
    return Contents{items, {items + begin * heaps::kWord, items + end * heaps::kWord}};
  }

  std::optional<Contents> array_items() const {
    if (bytes_ <= kArrayHeader) return {};
    uint64_t size = number(1), capacity = number(2) & kCapacityBits, items = block_.start;
    if (heaps::word(items + kArrayHeader - heaps::kWord) != kArrayHeader) return {};
    if (capacity == 0 || size > capacity) return {};
    uint64_t each = bytes_each(capacity);
    if (!heaps::may_hold_request(bytes_, kArrayHeader + capacity * each)) return {};
    items += kArrayHeader;
    if (each <= kMostCharacter) {
      if (size == capacity || !has_terminator(items + size * each, each)) return {};
      ++size;
    } else if (size == 0) {
      return {};  // two counts and a number look the same: an Arc of Rust
    }
    return Contents{items, {items, items + size * each}};
  }

  // Returns the largest size that items may have: there is no telling how much was requested.
  uint64_t bytes_each(uint64_t capacity) const {
    constexpr uint64_t kNumber = sizeof(uint32_t);
    uint64_t most = (bytes_ - kArrayHeader) / capacity;
    return most >= kNumber ? most / kNumber * kNumber : most >= kMostCharacter ? kMostCharacter : 1;
  }

  static constexpr uint64_t kMostCharacter = sizeof(uint16_t);

  static bool has_terminator(uint64_t at, uint64_t bytes) {
    return (bytes == 1 ? heaps::load<uint8_t>(at) : heaps::load<uint16_t>(at)) == 0;
  }

  heaps::Range block_;
  uint64_t bytes_;
};

}  // namespace reachscan::sweeper
