// How mimalloc 3 looks up pages: in a two-level map with an entry per slice of memory. It is found
// by its first entry, since the table for the lowest addresses directly follows the map, and proved
// by the pages that it leads to.
#pragma once

#include "heaps/images.hpp"

namespace reachscan::heaps::mimalloc {

constexpr uint64_t kMapSlice = 64 << 10;
constexpr uint64_t kTableSlots = 1 << 13;

// Differences between releases in a page's description (mi_page_t): whether it stores the position
// of its first block as an address or as a distance in words from itself, and where it says which
// memory it is in.
struct PageLayout {
  bool notes_address;
  uint32_t memory;
};

constexpr PageLayout kFrom30 = {true, 96};
constexpr PageLayout kFrom34 = {false, 88};
constexpr uint64_t kPageBytes = 120, kArenaBytes = 128;  // as far as they are read

// A page: blocks of one size. It may have room for more than were ever handed out.
struct MappedPage {
  uint64_t at;  // its description
  uint64_t first, size;
  uint64_t capacity, reserved, used;
  Range memory;    // empty if it is in none
  uint64_t arena;  // 0 if it is in none

  // Returns whether it has no block in use, or was released and cleared.
  bool is_empty() const { return used == 0; }

  bool is_possible() const {
    uint64_t blocks = memory.end - memory.start;
    return size != 0 && size % 8 == 0 && first % 8 == 0 && reserved != 0 && capacity <= reserved &&
           used <= capacity && memory.contains(first) && size <= blocks &&
           reserved * size <= memory.end - first;
  }
};

constexpr uint64_t kKindField = 16;
constexpr uint32_t kInArena = 7;

// Returns memory obtained from the kernel (mi_memid_t), which describes its start and length, or
// which arena it is part of. An arena starts with the same description of itself; other kinds of
// memory are not followed.
inline Range memory_of(const Space& space, uint64_t memid, bool in_arena = true) {
  constexpr uint32_t kFirstOfKernel = 4, kLastOfKernel = 6;
  if (!space.readable(memid, kKindField + 4)) return {0, 0};
  auto kind = load<uint32_t>(memid + kKindField);
  if (kind == kInArena && in_arena) return memory_of(space, word(memid), false);
  if (kind < kFirstOfKernel || kind > kLastOfKernel) return {0, 0};
  Range memory{word(memid), word(memid) + word(memid + 8)};
  return memory.start < memory.end ? memory : Range{0, 0};
}

// Returns 0 if the memory is a mapping of its own.
inline uint64_t arena_of(uint64_t memid) {
  return load<uint32_t>(memid + kKindField) == kInArena ? word(memid) : 0;
}

// Returns whether the arena has a page at `slice`, if it lists its pages as that of 3.0 does.
inline bool lists(const Space& space, uint64_t arena, const Range& memory, uint64_t slice) {
  constexpr uint64_t kFirstList = 64, kPagesList = 96, kBits = 128;
  uint64_t list = word(arena + kPagesList), number = (slice - arena) / kMapSlice;
  uint64_t bits = list + kBits + number / 64 * 8;
  if (!memory.contains(word(arena + kFirstList)) || !memory.contains(bits)) return true;
  return !space.readable(bits, 8) || (word(bits) >> number % 64 & 1) != 0;
}

inline MappedPage read_mapped_page(const Space& space, uint64_t at, const PageLayout& layout) {
  constexpr uint64_t kUsed = 16, kCapacity = 18, kReserved = 20, kSize = 40, kStart = 48;
  if (at % 8 != 0 || !space.readable(at, kPageBytes)) return {};
  uint64_t first =
      layout.notes_address ? word(at + kStart) : at + uint64_t{8} * load<uint32_t>(at + kStart);
  return {at,
          first,
          word(at + kSize),
          load<uint16_t>(at + kCapacity),
          load<uint16_t>(at + kReserved),
          load<uint16_t>(at + kUsed),
          memory_of(space, at + layout.memory),
          arena_of(at + layout.memory)};
}

// One copy of the allocator in the process.
struct PageMap {
  uint64_t at;
  uint64_t tables;
  uint64_t variable;  // the variable that points to it
  uint32_t file;
  PageLayout layout;

  // Returns the description of the page that contains `address`, 0 if there is none.
  uint64_t find(const Space& space, uint64_t address) const {
    uint64_t slice = address / kMapSlice;
    if (slice / kTableSlots >= tables) return 0;
    uint64_t table = word(at + 8 * (slice / kTableSlots));
    uint64_t entry = table + 8 * (slice % kTableSlots);
    return table != 0 && space.readable(entry, 8) ? word(entry) : 0;
  }
};

// Entries of tables in use, each of which covers half a gigabyte of addresses: more than a process
// has.
constexpr uint64_t kMaxUsedEntries = 1 << 25;

// Calls visit(address of a slice, description of its page) for all slices in address order, until
// it returns false or the budget is used up.
template <typename Visit>
void each_slice(const Space& space, const PageMap& map, Budget& budget, Visit visit) {
  uint64_t end = map.at + 8 * map.tables;
  for (uint64_t at = map.at; (at = space.skip_absent(at)) < end && budget.spend(1); at += 8) {
    uint64_t table = word(at), first = (at - map.at) / 8 * kTableSlots * kMapSlice;
    if (table == 0 || !space.readable(table, 8 * kTableSlots)) continue;
    // The entry of address 0 only serves the allocator.
    for (uint64_t slot = first == 0 ? 1 : 0; slot < kTableSlots && budget.spend(1); ++slot) {
      uint64_t page = word(table + 8 * slot);
      if (page != 0 && !visit(first + slot * kMapSlice, page)) return;
    }
  }
}

class MapSearch {
 public:
  explicit MapSearch(const Space& space) : space_(space) {}

  template <std::size_t kMax>
  std::size_t find(PageMap (&found)[kMax]) {
    std::size_t count = 0;
    for (const abi::Mapping& m : space_) {
      if (!Space::is_module_data(m)) continue;
      for (uint64_t at = align_up(m.start, 8); at + 8 <= m.end; at += 8) {
        if (at % kPage == 0) at = space_.skip_absent(at);
        if (at + 8 > m.end || count == kMax) break;
        if (!is_map(word(at), found[count])) continue;
        // Another variable records what to release.
        if (count > 0 && found[count - 1].at == found[count].at) continue;
        found[count].variable = at;
        found[count].file = m.file;
        ++count;
      }
    }
    return count;
  }

 private:
  static constexpr uint64_t kMinTables = 1 << 13, kMaxTables = 1 << 20;  // 42 to 49 bits
  static constexpr unsigned kProbedSlices = 64;

  bool is_map(uint64_t at, PageMap& found) {
    if (at % kPage != 0 || !space_.readable(at, 8 * kMinTables)) return false;
    uint64_t bytes = word(at) - at, tables = bytes / 8;
    bool possible = tables >= kMinTables && tables <= kMaxTables && (bytes & (bytes - 1)) == 0;
    if (!possible || !space_.is_anonymous(at, at + bytes)) return false;
    found = {at, tables, 0, 0, kFrom30};
    unsigned with_address = votes(found), seen = seen_;
    found.layout = kFrom34;
    unsigned with_distance = votes(found);
    if (with_distance < with_address) found.layout = kFrom30;
    // An allocator with other threads may be changing one of them right now.
    return 2 * (with_distance < with_address ? with_address : with_distance) > seen;
  }

  // Returns how many of the first entries lead to pages that fit the layout.
  unsigned votes(const PageMap& map) {
    unsigned valid = 0;
    seen_ = 0;
    each_slice(space_, map, entries_, [&](uint64_t, uint64_t at) {
      MappedPage page = read_mapped_page(space_, at, map.layout);
      if (page.is_empty()) return true;
      if (page.is_possible() && map.find(space_, page.first) == at) ++valid;
      return ++seen_ < kProbedSlices;
    });
    return valid;
  }

  const Space& space_;
  Budget entries_{kMaxUsedEntries};
  unsigned seen_ = 0;
};

}  // namespace reachscan::heaps::mimalloc
