// Recognises containers by the words in the objects that own them.
#pragma once

#include <optional>

#include "memory/block_map.hpp"
#include "memory/rounding.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;

// std::deque of libstdc++ (bits/stl_deque.h): the map of its nodes, the size of that, and an
// iterator each for its first element and for its end.
class DequeTest {
 public:
  static constexpr uint64_t kIterator = 4 * heaps::kWord;  // current, first, last, node

  DequeTest(const heaps::Space& space, const BlockMap& blocks) : space_(space), blocks_(blocks) {}

  bool is_iterator(uint64_t at) const {
    if (!space_.readable(at, kIterator)) return false;
    uint64_t current = heaps::word(at), first = heaps::word(at + heaps::kWord),
             last = heaps::word(at + 2 * heaps::kWord), node = heaps::word(at + 3 * heaps::kWord);
    return first <= current && current < last && node % heaps::kWord == 0 &&
           space_.readable(node, heaps::kWord) && heaps::word(node) == first;
  }

  // Returns whether the iterator for the first element is there, not only a copy of one.
  bool has_first(uint64_t at) const {
    constexpr uint64_t kBefore = 2 * heaps::kWord;
    if (!is_iterator(at) || !is_iterator(at + kIterator)) return false;
    if (!space_.readable(at - kBefore, kBefore)) return false;
    uint64_t map = heaps::word(at - kBefore), node = heaps::word(at + 3 * heaps::kWord);
    return blocks_.is_live(map) && (node - map) / heaps::kWord < heaps::word(at - heaps::kWord);
  }
  bool has_end(uint64_t at) const { return has_first(at - kIterator); }

 private:
  const heaps::Space& space_;
  const BlockMap& blocks_;
};

// llvm::BumpPtrAllocator (llvm/Support/Allocator.h): where it continues, where the slab ends, and a
// vector with the addresses of all slabs, of which it is the last.
class BumpTest {
 public:
  explicit BumpTest(const heaps::Space& space) : space_(space) {}

  // Returns whether the word at `slot` is where the slab of such an allocator ends.
  bool has_limit_of(uint64_t slab, uint64_t slot) const {
    uint64_t vector = slot + heaps::kWord;
    if (!space_.readable(vector, heaps::kWord + sizeof(uint32_t))) return false;
    uint64_t first = heaps::word(vector), slabs = heaps::load<uint32_t>(vector + heaps::kWord);
    uint64_t last = first + (slabs - 1) * heaps::kWord;
    return slabs != 0 && last % heaps::kWord == 0 && space_.readable(last, heaps::kWord) &&
           heaps::word(last) == slab;
  }

 private:
  const heaps::Space& space_;
};

// A buffer of bytes: its address, how many are in use, and how many there are, in some order
// (std::string, GString, Rust's String, OpenSSL's BUF_MEM). The first number would be smaller if it
// counted what can hold a pointer.
class BufferTest {
 public:
  explicit BufferTest(const heaps::Space& space) : space_(space) {}

  // Returns how many bytes of the block are in use, given where the pointer to it is, if there are
  // such numbers next to that.
  std::optional<uint64_t> used_bytes(uint64_t slot, heaps::Range block) const {
    constexpr uint64_t kWord = heaps::kWord;
    if (!space_.readable(slot - 2 * kWord, 5 * kWord)) return {};
    for (uint64_t first : {slot - 2 * kWord, slot - kWord, slot}) {
      uint64_t numbers[2], count = 0;
      for (uint64_t at = first; at < first + 3 * kWord; at += kWord)
        if (at != slot) numbers[count++] = heaps::word(at);
      uint64_t used = numbers[0], all = numbers[1];
      if (used > all) used = numbers[1], all = numbers[0];
      bool fits = heaps::may_hold_request(block.end - block.start, all);
      if (fits && used > all / kWord && used < all) return used;
    }
    return {};
  }

 private:
  const heaps::Space& space_;
};

// Room for items in an object, that of llvm::SmallVector (llvm/ADT/SmallVector.h): the address of
// the first item, how many there are, and how many fit. Until there are more, they follow these
// numbers.
class SmallVector {
 public:
  explicit SmallVector(uint64_t address) : address_(address) {}

  bool has_items_inside() const { return heaps::word(address_) == first_item() && fitting() != 0; }

  // Returns the room in a vector that has no items. Where the next vector begins tells how large it
  // is; if none follows, only the least room is known.
  heaps::Range empty_room(uint64_t object_end) const {
    if (heaps::load<uint32_t>(address_ + heaps::kWord) != 0 || fitting() < kFewest) return {};
    uint64_t first = first_item(), next = next_vector(object_end);
    bool is_room = next != 0 && (next - first) % (fitting() * heaps::kWord) == 0;
    uint64_t end = is_room ? next : first + least_room();
    return end <= object_end ? heaps::Range{first, end} : heaps::Range{};
  }

  static constexpr uint64_t kBytes = heaps::kWord + 2 * sizeof(uint32_t);  // ahead of the items

 private:
  static constexpr uint64_t kFewest = 4;  // otherwise, what follows may be fields

  // Returns 0 if none follows in the object.
  uint64_t next_vector(uint64_t object_end) const {
    for (uint64_t next = first_item(); next + kBytes <= object_end; next += heaps::kWord)
      if (SmallVector(next).has_items_inside()) return next;
    return 0;
  }

  // Vectors of smaller items have numbers of 64 bits.
  uint64_t least_room() const { return fitting() * sizeof(uint32_t) / heaps::kWord * heaps::kWord; }

  uint64_t first_item() const { return address_ + kBytes; }
  uint64_t fitting() const {
    return heaps::load<uint32_t>(address_ + heaps::kWord + sizeof(uint32_t));
  }

  uint64_t address_;
};

// The key of a bucket, which is all or half of its first word, or that and half of the second.
struct BucketKey {
  uint64_t first, second;

  BucketKey operator&(const BucketKey& bits) const {
    return {first & bits.first, second & bits.second};
  }
  bool operator==(const BucketKey&) const = default;

  // Of a mask: the bytes of the words that are part of a key.
  uint64_t bytes() const { return (second != 0 ? 2 : 1) * heaps::kWord; }
};

// The buckets of a map, each of which begins with its key.
struct Buckets {
  uint64_t start, end, bytes_each;
  BucketKey bits;                 // those that are the key
  BucketKey never_used, removed;  // the keys of buckets that are free
  bool are_all_free;              // objects in a row, all of one class, look alike

  BucketKey key_at(uint64_t bucket) const {
    return BucketKey{heaps::word(bucket), heaps::word(bucket + heaps::kWord)} & bits;
  }

  // Returns whether the word belongs to the value of a free key, or lies behind the last bucket.
  bool is_unused(uint64_t slot) const {
    if (slot >= end) return true;
    uint64_t offset = (slot - start) % bytes_each;
    if (offset < bits.bytes()) return false;
    BucketKey key = key_at(slot - offset);
    return key == never_used || key == removed;
  }
};

// Maps of LLVM (llvm/ADT/DenseMap.h), recognised by the pointer to their buckets: `slot` is where
// it is, and `block` what it points to.
class MapTest {
 public:
  MapTest(const heaps::Space& space, uint64_t slot, heaps::Range block)
      : space_(space), slot_(slot), block_(block) {}

  std::optional<Buckets> buckets() const {
    for (const Counts& counts : {dense_map(), small_dense_map()})
      for (const BucketKey& bits : kKeys)
        if (auto found = buckets_of(counts, bits)) return found;
    return {};
  }

 private:
  static constexpr uint64_t kLeastBuckets = 64;  // LLVM never allocates fewer
  static constexpr uint64_t kKeysTried = 16;     // one in eight was never used
  static constexpr uint64_t kWholeWord = heaps::wrapped(~0ull), kLowerHalf = ~0u;
  static constexpr BucketKey kKeys[] = {{kWholeWord, 0}, {kLowerHalf, 0}, {kWholeWord, kLowerHalf}};

  struct Counts {
    uint64_t taken, removed, buckets;
  };

  // DenseMap: after the pointer, the numbers of entries, removed keys, and buckets.
  Counts dense_map() const {
    uint64_t after = slot_ + heaps::kWord;
    if (!space_.readable(after, 3 * sizeof(uint32_t))) return {};
    return {heaps::load<uint32_t>(after), heaps::load<uint32_t>(after + 4),
            heaps::load<uint32_t>(after + 8)};
  }

  // SmallDenseMap: before the pointer, twice the number of entries, and that of removed keys; after
  // it, that of buckets.
  Counts small_dense_map() const {
    uint64_t before = slot_ - 2 * sizeof(uint32_t), after = slot_ + heaps::kWord;
    if (!space_.readable(before, after + sizeof(uint32_t) - before)) return {};
    return {heaps::load<uint32_t>(before) / 2, heaps::load<uint32_t>(before + 4),
            heaps::load<uint32_t>(after)};
  }

  // Returns nothing unless as many keys are alike as should be free.
  std::optional<Buckets> buckets_of(const Counts& counts, const BucketKey& bits) const {
    bool is_power_of_two = (counts.buckets & (counts.buckets - 1)) == 0;
    if (counts.buckets < kLeastBuckets || !is_power_of_two) return {};
    if (counts.taken + counts.removed >= counts.buckets) return {};
    uint64_t bytes = block_.end - block_.start;
    uint64_t bytes_each = bytes / counts.buckets & ~(heaps::kWord - 1);
    uint64_t end = block_.start + bytes_each * counts.buckets;
    if (bytes_each <= bits.bytes() || block_.end - end > heaps::rounding(bytes)) return {};
    uint64_t free = counts.buckets - counts.taken - counts.removed;
    Buckets found{block_.start, end, bytes_each, bits, {}, {}, free == counts.buckets};
    auto never_used = key_that_repeats(free, found);
    if (!never_used) return {};
    // Each key in use is there once.
    auto removed = counts.removed > 1 ? key_that_repeats(counts.removed, found) : std::nullopt;
    found.never_used = *never_used;
    found.removed = removed.value_or(*never_used);
    return found;
  }

  // Returns a key that is there that many times, if there is one.
  static std::optional<BucketKey> key_that_repeats(uint64_t times, const Buckets& buckets) {
    for (uint64_t i = 0; i < kKeysTried; ++i) {
      BucketKey key = buckets.key_at(buckets.start + buckets.bytes_each * i);
      uint64_t found = 0;
      for (uint64_t at = buckets.start; at < buckets.end; at += buckets.bytes_each)
        found += buckets.key_at(at) == key ? 1 : 0;
      if (found == times) return key;
    }
    return {};
  }

  const heaps::Space& space_;
  uint64_t slot_;
  heaps::Range block_;
};

}  // namespace reachscan::sweeper
