// Iterates over all groups listed in descriptors: puts their blocks into the map, and claims the
// memory that contains groups and descriptors.
#pragma once

#include "heaps/musl/find_context.hpp"

namespace reachscan::heaps::musl {

class Groups {
 public:
  Groups(const Space& space, uint32_t arena, const Enumeration& found)
      : space_(space), arena_(arena), found_(found) {}

  Verdict claim_all(const Context& context) {
    uint64_t secret = word(context.address + kSecretField);
    // An area that is met again overlaps itself.
    for (uint64_t area = word(context.address + kFirstAreaField); area != 0 && verdict_.fine();
         area = word(area + kNextAreaField)) {
      if (!is_area(space_, area, secret))
        return invalid("a page of the allocator's descriptors is damaged", area);
      claim_area(area);
    }
    if (verdict_.fine() && nested_groups_ != nested_slots_)
      return invalid("slots that hold groups are not as many as such groups", context.address);
    return verdict_;
  }

 private:
  static constexpr uint32_t kAhead = 4;  // groups: headers of slots are far apart

  void claim_area(uint64_t area) {
    found_.blocks.add_boundary(area);
    add_region({area, area + kPage, wire::kThreadHeap, arena_, 0, 0});
    for (uint32_t i = 0; i < kDescriptorsInArea && verdict_.fine(); ++i) {
      if (i + kAhead < kDescriptorsInArea) fetch_slots(descriptor(area, i + kAhead));
      Group group = read_group(descriptor(area, i));
      if (group.start != 0) claim(group);
    }
  }

  static uint64_t descriptor(uint64_t area, uint32_t index) {
    return area + kDescriptorsField + index * kDescriptorBytes;
  }

  // Fetches the headers of its slots.
  static void fetch_slots(uint64_t descriptor) {
    const Group group = read_group(descriptor);
    for (uint64_t i = 0; i < group.slots; ++i) fetch_to_l2(group.slot(i) - kWord);
  }

  void claim(const Group& group) {
    if (!is_group(group)) return stop("a group of slots is not where its descriptor says", group);
    uint32_t kind = group.pages != 0 && group.slots == 1 ? wire::kMapped : wire::kThreadHeap;
    nested_groups_ += group.is_nested();
    found_.blocks.add_boundary(group.start);
    for (uint64_t i = 0; i < group.slots && verdict_.fine(); ++i) {
      found_.blocks.add_boundary(group.slot(i));
      if ((group.taken >> i & 1) != 0) claim_slot(group, i);
    }
    close_at(group.slot(group.slots));
    if (!group.is_nested() && verdict_.fine())
      add_region({group.start, group.end(), kind, arena_, 0, 0, exact_end});
  }

  bool is_group(const Group& group) const {
    if (group.start % kUnit != 0 || group.stride == 0 || group.end() < group.slot(group.slots) ||
        !space_.readable(group.start, group.end() - group.start) || word(group.start) != group.meta)
      return false;
    if (group.pages != 0)
      return group.start % kPage == 0 && space_.is_anonymous(group.start, group.end());
    return group.donated ? is_module_data(group.start, group.end()) : is_in_slot(group);
  }

  bool is_module_data(uint64_t start, uint64_t end) const {
    const abi::Mapping* m = space_.find(start);
    while (m != nullptr && Space::is_module_data(*m)) {
      if (end <= m->end) return true;
      if (++m == space_.end()) break;
    }
    return false;
  }

  // Returns whether a nested group is in the slot of another one.
  bool is_in_slot(const Group& group) const {
    uint64_t start = group.start;
    if (!space_.readable(start - 8, 8) || header_of(start) >> 5 != kNested) return false;
    uint64_t outer_start = start - distance_of(start) - kUnit;
    if (!space_.readable(outer_start, 8)) return false;
    uint64_t meta = word(outer_start), index = header_of(start) & 31;
    if (!space_.readable(meta, kDescriptorBytes)) return false;
    Group outer = read_group(meta);
    return outer.start == outer_start && index < outer.slots && outer.slot(index) == start &&
           (outer.taken >> index & 1) != 0 && group.end() <= outer.slot(index + 1);
  }

  void claim_slot(const Group& group, uint64_t index) {
    uint64_t slot = group.slot(index), end = group.slot(index + 1);
    uint8_t header = header_of(slot);
    // The group in it has a descriptor of its own.
    nested_slots_ += header >> 5 == kNested;
    // free() marks the header first.
    if (header >> 5 == kNested || header == kHeaderOfFreed) return;
    uint64_t block = header == kHeaderOfMoved ? moved_block(group, index) : slot;
    if (block == 0 || !is_block(group, index, block))
      return stop("a slot that is in use does not say how", group);
    if (header_of(block) == kHeaderOfFreed) return;
    uint64_t usable = usable_end(block, end);
    if (usable == 0) return stop("the size of a block does not fit its slot", group);
    found_.add_block(block, usable - block, end);
  }

  // The header of the slot has 16 bits for how much later the block starts.
  static uint64_t moved_block(const Group& group, uint64_t index) {
    constexpr uint64_t kWrap = (1 << 16) * kUnit;
    uint64_t slot = group.slot(index), end = group.slot(index + 1);
    uint64_t block = slot + load<uint16_t>(slot - 2) * kUnit;
    if (block == slot) block += kWrap;
    while (block < end && !is_block(group, index, block)) block += kWrap;
    return block < end ? block : 0;
  }

  static bool is_block(const Group& group, uint64_t index, uint64_t block) {
    if (header_of(block) == kHeaderOfFreed) return true;
    return (header_of(block) & 31) == index && distance_of(block) == block - group.slot(0);
  }

  void add_region(const Region& region) {
    Verdict claimed =
        found_.claim(region, "the allocator's memory overlaps that of something else");
    if (claimed.fine())
      close_at(region.end);
    else
      verdict_ = claimed;
  }

  // Something may have been found there already.
  void close_at(uint64_t end) {
    if (!found_.blocks.is_live(end)) found_.blocks.add_boundary(end);
  }

  void stop(const char* reason, const Group& group) { verdict_ = invalid(reason, group.start); }

  const Space& space_;
  uint32_t arena_;
  Enumeration found_;
  uint64_t nested_groups_ = 0;
  uint64_t nested_slots_ = 0;
  Verdict verdict_;
};

}  // namespace reachscan::heaps::musl
