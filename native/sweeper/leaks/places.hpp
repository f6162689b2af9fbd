// Decides what a place, a distance from the start, holds in blocks that are alike: a field, or
// leftovers from a former use of the memory.
//
// A pointer field leads to the starts of blocks, seldom elsewhere. Leftover words are of all sorts:
// many point into the middle of blocks, and some to memory that is free by now, to which no program
// keeps pointers for long. If the other blocks have numbers there, that says little: blocks that
// only seem alike seldom have a pointer at the same place.
#pragma once

#include "sweeper/leaks/kind_counts.hpp"
#include "sweeper/leaks/stretches.hpp"

namespace reachscan::sweeper {

class Places {
 public:
  Places(const BlockMap& blocks, const KindCounts& kinds) : blocks_(blocks), kinds_(kinds) {}

  // What is there in blocks like the owner will be counted; without room for more, it is a field.
  void ask(uint64_t owner, uint64_t slot) {
    uint64_t kind = kinds_.kind_of(owner);
    Place& place = place_of(kind, slot - owner);
    if (place.key != 0 || used_ == kPlaces / 2) return;
    Place& first = place_of(kind, kNone);
    if (first.key == 0) {
      first.key = key_of(kind, kNone);
      first.next = kNone;
      ++used_;
    }
    ++used_;
    place.key = key_of(kind, slot - owner);
    place.offset = slot - owner;
    place.next = first.next;
    first.next = static_cast<uint64_t>(&place - places_.get());
    sizes_[size_slot(owner)] = 1;
  }

  // To be called once, when all are asked about. Only blocks in use count; of a large heap, those
  // in parts of it.
  template <typename IsInUse>
  void count(IsInUse is_in_use) {
    if (used_ == 0) return;
    auto look = [&](uint64_t start, uint64_t end) {
      // A piece ends with a word of the next, where a block may begin.
      blocks_.each_live_in({start, end - heaps::kWord}, [&](uint64_t block) {
        if (sizes_[size_slot(block)] != 0 && is_in_use(block)) count_in(block);
      });
    };
    through_heap(blocks_, look, kMostBytes);
  }

  // Of what was asked about: whether some of the words there point to free memory.
  bool has_dangling(uint64_t owner, uint64_t slot) const {
    return place_of(kinds_.kind_of(owner), slot - owner).dangling > 0;
  }

  bool is_field(uint64_t owner, uint64_t slot) const {
    const Place& place = place_of(kinds_.kind_of(owner), slot - owner);
    return place.blocks < kLeastBlocks || (place.dangling == 0 && place.inside <= place.starts);
  }

 private:
  static constexpr uint64_t kLeastBlocks = 4;        // that say anything
  static constexpr uint64_t kMostBytes = 128 << 20;  // what it costs must not grow with the heap
  static constexpr unsigned kPlaceBits = 16;
  static constexpr uint64_t kPlaces = 1u << kPlaceBits, kSizes = 1u << 12;
  static constexpr uint64_t kNone = ~0ull;

  // With the offset kNone it only leads to the places that were asked about in blocks of a kind.
  struct Place {
    uint64_t key;  // 0: none
    uint64_t offset;
    uint64_t next;  // of the same kind
    uint64_t blocks, starts, inside, dangling;
  };

  uint64_t size_slot(uint64_t block) const {
    return (blocks_.end_of(block) - block) / heaps::kGranule % kSizes;
  }

  static uint64_t key_of(uint64_t kind, uint64_t offset) { return mixed(kind, offset) | 1; }

  // The row of the place, or one that is free.
  Place& place_of(uint64_t kind, uint64_t offset) const {
    uint64_t key = key_of(kind, offset), slot = mixed(key, 0) >> (64 - kPlaceBits);
    while (places_.get()[slot].key != 0 && places_.get()[slot].key != key)
      slot = (slot + 1) % kPlaces;
    return places_.get()[slot];
  }

  void count_in(uint64_t block) {
    const Place& first = place_of(kinds_.kind_of(block), kNone);
    if (first.key == 0) return;
    for (uint64_t next = first.next; next != kNone; next = places_[next].next) {
      Place& place = places_[next];
      add_one(place.blocks);
      count(place, heaps::word(block + place.offset));
    }
  }

  void count(Place& place, uint64_t value) const {
    if (!blocks_.may_point(value)) return;
    uint64_t target = blocks_.block_of(value);
    if (target == value) {
      add_one(place.starts);
    } else if (target != 0 || blocks_.block_of(value - 1) != 0) {
      add_one(place.inside);
    } else if (blocks_.region_of(value) != nullptr) {
      add_one(place.dangling);
    }
  }

  static void add_one(uint64_t& count) { __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED); }

  const BlockMap& blocks_;
  const KindCounts& kinds_;
  mutable Scratch<Place> places_{kPlaces};
  Scratch<uint8_t> sizes_{kSizes};  // 1: blocks of such a size are counted
  uint64_t used_ = 0;
};

}  // namespace reachscan::sweeper
