// Finds main_arena in stripped, dynamic and static programs alike: main_arena.next leads through
// all arenas back to main_arena, and its offset identifies the layout family.
#pragma once

#include "heaps/glibc/layout.hpp"

namespace reachscan::heaps::glibc {

constexpr std::size_t kMaxInstances = 16;
constexpr std::size_t kMaxArenas = abi::QuiesceHint::kMaxMutexes;
// A list that is being changed has at most a few broken bins.
constexpr unsigned kMinConsistentBins = 120;
// Steps of the search; a false ring may be followed from each word of a module's data.
constexpr uint64_t kSearch = 1 << 23;
// A thread arena directly follows the heap_info at the start of an aligned heap: four words, since
// 2.35 five, padded so that the first chunk behind it is aligned.
constexpr uint64_t kHeapAlignment = 1 << 20;
constexpr uint64_t kHeapInfoUntil234 = align_up(6 * kWord, kChunkAlignment) - 2 * kWord;
constexpr uint64_t kHeapInfoFrom235 = align_up(3 * kWord, kChunkAlignment) + 2 * kWord;

inline bool is_thread_arena(const Space& space, uint64_t arena) {
  uint64_t offset = arena & (kHeapAlignment - 1);
  if (offset != kHeapInfoUntil234 && offset != kHeapInfoFrom235) return false;
  return space.readable(arena - offset, kPage) && word(arena - offset) == arena;
}

// Returns the number of arenas on the ring that starts with main_arena, 0 if it is not a ring.
inline std::size_t ring_length(const Space& space, uint64_t main_arena, const ArenaLayout& layout,
                               Budget& budget) {
  uint64_t arena = word(main_arena + layout.next);
  for (std::size_t length = 1; length <= kMaxArenas; ++length) {
    if (arena == main_arena) return length;
    if (!budget.spend(1) || !is_thread_arena(space, arena)) return 0;
    arena = word(arena + layout.next);
  }
  return 0;
}

enum class Bins { kUnused, kUsed, kNone };

// Before the first malloc, all bins are zero. It makes them empty one by one, before it sets the
// top and gets memory. From then on, each is a ring of chunks through the arena, as if the bin's
// two pointers followed a chunk header.
inline Bins classify_bins(const Space& space, uint64_t arena, const ArenaLayout& layout) {
  unsigned zero = 0, empty = 0, consistent = 0;
  for (unsigned i = 0; i < kBinPairs; ++i) {
    uint64_t pair = arena + layout.bins + i * 2 * kWord;
    uint64_t head = pair - kHeader, forward = word(pair), backward = word(pair + kWord);
    if (forward == 0 && backward == 0) {
      ++zero;
    } else if (forward == head && backward == head) {
      ++empty;
    } else if (space.readable(forward, 4 * kWord) && space.readable(backward, 4 * kWord) &&
               word(forward + 3 * kWord) == head && word(backward + 2 * kWord) == head) {
      ++consistent;
    }
  }
  constexpr unsigned kHalfMade = 1;  // only its first pointer is set
  // Until 2.22, max_system_mem is where system_mem is later.
  bool has_memory = word(arena + layout.next + kSystemMemFrom223) != 0;
  if (zero + empty + kHalfMade >= kBinPairs && word(arena + layout.top) == 0 && !has_memory)
    return Bins::kUnused;
  return empty + consistent >= kMinConsistentBins ? Bins::kUsed : Bins::kNone;
}

// Reads an Instance whose `next` field may be at `field`; returns false if it is not.
inline bool instance_at(const Space& space, uint64_t field, const abi::Mapping& m, Instance& found,
                        Budget& budget) {
  uint64_t next = word(field);
  for (const ArenaLayout& layout : {kFrom227, kFrom243, kUntil226}) {
    uint64_t arena = field - layout.next;
    if (next != arena && !is_thread_arena(space, next)) continue;
    if (!space.readable(arena, layout.size) || ring_length(space, arena, layout, budget) == 0)
      continue;
    if (!budget.spend(kBinPairs)) return false;
    Bins bins = classify_bins(space, arena, layout);
    if (bins == Bins::kNone) continue;
    found = {arena, layout, m.file, bins == Bins::kUsed};
    return true;
  }
  return false;
}

inline std::size_t find_instances(const Space& space, Instance (&found)[kMaxInstances]) {
  std::size_t count = 0;
  Budget budget(kSearch);
  for (const abi::Mapping& m : space) {
    if (!Space::is_module_data(m)) continue;
    for (uint64_t field = align_up(m.start, kWord); field + kWord <= m.end; field += kWord) {
      uint64_t next = word(field);
      uint64_t offset = next & (kHeapAlignment - 1);
      bool promising = field - next <= kFrom227.next || offset == kHeapInfoUntil234 ||
                       offset == kHeapInfoFrom235;
      if (!promising || count == kMaxInstances) continue;
      if (instance_at(space, field, m, found[count], budget)) ++count;
    }
  }
  return count;
}

inline Verdict list_arenas(const Instance& instance, uint32_t ordinal, List<Arena>& arenas) {
  uint64_t address = instance.main_arena;
  uint32_t number = 0;
  do {
    if (!arenas.push({address, ordinal, number++})) return {Verdict::kNoMemory, nullptr, address};
    address = word(address + instance.layout.next);
  } while (address != instance.main_arena);
  return {};
}

}  // namespace reachscan::heaps::glibc
