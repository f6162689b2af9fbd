// Iterates over all extents in address order: puts blocks into the map, and claims the memory that
// contains extents and metadata.
#pragma once

#include "heaps/jemalloc/find_tree.hpp"

namespace reachscan::heaps::jemalloc {

class Extents {
 public:
  Extents(const Space& space, const Instance& instance, Metadata& metadata, uint32_t first_arena,
          const Enumeration& found)
      : space_(space),
        instance_(instance),
        metadata_(metadata),
        first_arena_(first_arena),
        found_(found),
        budget_(budget_of_entries(space)) {}

  Verdict claim_all() {
    each_leaf(
        instance_, [this](uint64_t at, uint64_t bytes) { return has_node(at, bytes); },
        [this](uint64_t leaf, uint64_t base) { return claim_leaf(leaf, base); });
    close_region();
    return verdict_;
  }

  uint32_t arenas = 0;  // one more than the highest number

 private:
  bool has_node(uint64_t node, uint64_t bytes) {
    if (claim_metadata(node) && metadata_.last().end - node >= bytes) return true;
    stop("what finds the extents is not in the allocator's own memory", node);
    return false;
  }

  bool claim_leaf(uint64_t leaf, uint64_t base) {
    Range pages{base > next_ ? base : next_, base + instance_.tree.reach()};
    each_entry(space_, instance_.tree, leaf, pages, budget_,
               [this](uint64_t at, uint64_t page) { return claim(at, page); });
    if (budget_.empty()) stop("there are more extents than memory for them", leaf);
    return verdict_.fine();
  }

  // Returns where the extent of a page ends, 0 to stop.
  uint64_t claim(uint64_t entry_at, uint64_t page) {
    LeafEntry entry = read_entry(entry_at, instance_.tree, instance_.layout);
    const Tree& tree = instance_.tree;
    if (entry.extent == 0) return page + tree.page();  // a former extent
    if (!space_.readable(entry.extent, tree.extent_bytes()) || !claim_metadata(entry.extent))
      return stop("an extent's structure is not in the allocator's own memory", entry.extent);
    Extent extent = read_extent(entry.extent, tree, instance_.layout);
    if (extent.start != page || extent.end <= page || !is_anonymous({page, extent.end}))
      return stop("an extent is not where the allocator looks for it", page);
    if (!agree(extent, entry))
      return stop("an extent holds other blocks than the allocator says", page);
    extend_region(extent);
    close_at(extent.end);
    const char* wrong = nullptr;
    if (!extent.has_blocks()) {
      found_.blocks.add_boundary(extent.start);
    } else {
      wrong = extent.is_slab ? claim_slab(extent) : claim_large(extent);
    }
    if (wrong != nullptr) return stop(wrong, page);
    if (verdict_.fine()) next_ = extent.end;
    return verdict_.fine() ? next_ : 0;
  }

  // Reads the bitmap of free slots.
  const char* claim_slab(const Extent& extent) {
    uint64_t size = size_of_class(extent.size_class, instance_.quantum);
    uint64_t slots = (extent.end - extent.start) / size;
    if (slots == 0 || slots > instance_.tree.max_slab_slots()) return "a slab has too many slots";
    uint64_t slot = extent.start, free_slots = 0;
    for (unsigned index = 0; 64 * index < slots; ++index) {
      uint64_t left = slots - 64 * index;
      uint64_t count = left < 64 ? left : 64, free = extent.slot_word(index);
      if (count < 64 && free >> count != 0) return "a slab has free slots behind its end";
      for (; count > 0; --count, free >>= 1, slot += size) {
        if ((free & 1) != 0) {
          ++free_slots;
          found_.blocks.add_boundary(slot);
        } else {
          found_.blocks.add_live(slot);
        }
      }
    }
    if (free_slots != extent.free_slots)
      return "a slab has another number of free slots than it says";
    if (slot < extent.end) found_.blocks.add_boundary(slot);
    found_.totals.blocks += slots - free_slots;
    found_.totals.bytes += (slots - free_slots) * size;
    return nullptr;
  }

  // A sampled block is smaller than its extent. Since 5.3.1 large blocks may have any number of
  // pages, and the class is only the next larger one.
  const char* claim_large(const Extent& extent) {
    uint64_t size = size_of_class(extent.size_class, instance_.quantum);
    if (size >= instance_.tree.min_large()) size = extent.end - extent.start - instance_.large_pad;
    if (extent.block + size > extent.end || extent.block % kGranule != 0)
      return "a large block does not lie in its extent";
    found_.blocks.add_boundary(extent.start);
    found_.blocks.add_live(extent.block);
    close_at(extent.block + size);
    found_.totals.add(size);
    return nullptr;
  }

  // Consecutive extents of one arena are one region.
  void extend_region(const Extent& extent) {
    uint32_t arena = first_arena_ + extent.arena;
    if (extent.arena >= arenas) arenas = extent.arena + 1;
    if (region_.end != extent.start || region_.arena != arena) {
      close_region();
      region_ = {extent.start, extent.start, wire::kThreadHeap, arena, 0, 0};
    }
    region_.end = extent.end;
  }

  void close_region() {
    if (region_.start != region_.end && verdict_.fine()) add_region(region_);
    region_ = {};
  }

  void add_region(const Region& region) {
    Verdict claimed = found_.claim(region, "an extent overlaps the memory of something else");
    if (!claimed.fine()) verdict_ = claimed;
  }

  // Returns whether `address` is in a mapping of metadata, which is claimed with everything that
  // follows in it.
  bool claim_metadata(uint64_t address) {
    if (metadata_.contains(address)) return true;
    Range found = metadata_around(space_, address, budget_);
    if (found.start == found.end || !metadata_.add(found)) return false;
    found_.blocks.add_boundary(found.start);
    close_at(found.end);
    add_region({found.start, found.end, wire::kThreadHeap, first_arena_, 0, 0});
    return verdict_.fine();
  }

  // Something may have been found there already.
  void close_at(uint64_t end) {
    if (!found_.blocks.is_live(end)) found_.blocks.add_boundary(end);
  }

  bool is_anonymous(Range pages) {
    if (pages.start < run_.start || pages.end > run_.end) run_ = space_.anonymous_run(pages.start);
    return pages.start >= run_.start && pages.end <= run_.end;
  }

  uint64_t stop(const char* reason, uint64_t address) {
    verdict_ = invalid(reason, address);
    return 0;
  }

  const Space& space_;
  const Instance& instance_;
  Metadata& metadata_;
  uint32_t first_arena_;
  Enumeration found_;
  Region region_ = {};
  uint64_t next_ = 0;  // everything before is done
  Range run_{0, 0};
  Budget budget_;
  Verdict verdict_;
};

}  // namespace reachscan::heaps::jemalloc
