// Decides whether a place, an offset in blocks that are alike, is a field or holds stale words from
// a former use of the memory.
//
// What pointers and stale words lead to tells them apart (aims.hpp). Numbers at that place in other
// blocks say little: blocks that only look alike rarely have a pointer at the same place.
//
// All sorts of objects lie in pages of GLib's slices (slices.hpp). What other pages have at a place
// says nothing about it, so it counts as a field.
#pragma once

#include "sweeper/search/stretches.hpp"
#include "sweeper/stale/aims.hpp"
#include "sweeper/stale/kind_counts.hpp"
#include "sweeper/stale/slices.hpp"

namespace reachscan::sweeper {

class Places {
 public:
  Places(const BlockMap& blocks, const KindCounts& kinds)
      : blocks_(blocks), kinds_(kinds), slices_(blocks) {}

  // Requests that the words at this place be counted in blocks like the owner. If there is no room
  // for more, the place counts as a field.
  void ask(uint64_t owner, uint64_t slot) {
    if (slices_.is_page(owner)) return;
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

  // Called once, after all calls to ask(). Counts only blocks that count; of a large heap, only
  // samples.
  template <typename Counts>
  void count(Counts counts) {
    if (used_ == 0) return;
    auto look = [&](uint64_t start, uint64_t end) {
      each_live_in_piece(blocks_, {start, end}, [&](uint64_t block) {
        if (sizes_[size_slot(block)] != 0 && counts(block)) count_in(block);
      });
    };
    visit_heap(blocks_, look, kSampleBytes);
  }

  // For places passed to ask(): whether some of the words there point to free memory.
  bool has_dangling(uint64_t owner, uint64_t slot) const {
    return place_of(kinds_.kind_of(owner), slot - owner).aims.dangling != 0;
  }

  // For places passed to ask(): whether the words there look stale. Of large blocks, which are told
  // apart by size only, nothing is known.
  bool look_stale(uint64_t owner, uint64_t slot) const {
    return blocks_.end_of(owner) - owner < heaps::kPage && !is_field(owner, slot);
  }

  // For places passed to ask(): whether words there lead into the middle of blocks of several
  // sizes.
  bool leads_into_several(uint64_t owner, uint64_t slot) const {
    return place_of(kinds_.kind_of(owner), slot - owner).has_several_sizes;
  }

  bool is_field(uint64_t owner, uint64_t slot) const {
    const Place& place = place_of(kinds_.kind_of(owner), slot - owner);
    return place.blocks < kMinSampleBlocks || !place.aims.look_stale();
  }

 private:
  static constexpr uint64_t kMinSampleBlocks = 4;  // fewer are not conclusive
  static constexpr unsigned kPlaceBits = 16;
  static constexpr uint64_t kPlaces = 1u << kPlaceBits, kSizes = 1u << 12;
  static constexpr uint64_t kNone = ~0ull;

  // An entry with the offset kNone is only the head of the list of places passed to ask() for a
  // kind.
  struct Place {
    uint64_t key;  // 0: none
    uint64_t offset;
    uint64_t next;  // in the list of the same kind
    uint64_t blocks;
    Aims aims;
    uint64_t size;  // of the first block whose middle a word leads into
    bool has_several_sizes;
  };

  uint64_t size_slot(uint64_t block) const {
    return (blocks_.end_of(block) - block) / heaps::kGranule % kSizes;
  }

  static uint64_t key_of(uint64_t kind, uint64_t offset) { return mixed(kind, offset) | 1; }

  // Returns the row of the place, or a free one.
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
      __atomic_fetch_add(&place.blocks, 1, __ATOMIC_RELAXED);
      uint64_t value = heaps::word(block + place.offset);
      if (blocks_.block_of(value) == block) continue;  // to what is short enough to be inside
      place.aims.count(blocks_, value);
      note_size(place, value);
    }
  }

  void note_size(Place& place, uint64_t value) {
    uint64_t target = blocks_.block_of(value);
    if (target == 0 || target == value) return;
    uint64_t size = blocks_.end_of(target) - target, before = 0;
    bool is_first = __atomic_compare_exchange_n(&place.size, &before, size, false, __ATOMIC_RELAXED,
                                                __ATOMIC_RELAXED);
    if (!is_first && before != size)
      __atomic_store_n(&place.has_several_sizes, true, __ATOMIC_RELAXED);
  }

  const BlockMap& blocks_;
  const KindCounts& kinds_;
  Slices slices_;
  mutable Scratch<Place> places_{kPlaces};
  Scratch<uint8_t> sizes_{kSizes};  // 1: blocks of such a size are counted
  uint64_t used_ = 0;
};

}  // namespace reachscan::sweeper
