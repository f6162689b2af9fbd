// Blocks of one word, and adjacent blocks with nothing between them.
#include <random>
#include <vector>

#include "arch/lanes.hpp"
#include "check.hpp"
#include "graph.hpp"
#include "hosted.hpp"
#include "memory/block_map.hpp"

namespace reachscan::tests {
namespace {

using heaps::BlockMap;
using heaps::kPage;
using heaps::Range;
using heaps::Space;
using sweeper::map_memory;

constexpr uint64_t kStart = 0x7f0000000000;

// Slots of one size that fill a region, as in a slab. Every third one is free.
struct Slab {
  Slab(uint64_t at, uint64_t size_of_slot, uint64_t slots) : start(at), size(size_of_slot) {
    for (uint64_t i = 0; i < slots; ++i) (i % 3 == 1 ? free : live).push_back(at + i * size);
    end = at + slots * size;
  }

  void add_to(BlockMap& blocks) const {
    for (uint64_t slot : live) blocks.add_live(slot);
    for (uint64_t slot : free) blocks.add_boundary(slot);
    blocks.add_boundary(end);
    CHECK(blocks.regions.add({start, end, wire::kMapped, 0, 0, 0}));
  }

  uint64_t start, size, end;
  std::vector<uint64_t> live, free;
};

struct Slabs {
  Slabs() {
    uint64_t at = kStart;
    for (uint64_t size : {8, 16, 24, 48, 8}) {
      // More slots than a pair of words has bits. The last slab ends where all memory ends.
      slabs.emplace_back(at, size, 2 * kPage / size);
      at += 2 * kPage;
    }
    for (const Slab& slab : slabs) slab.add_to(blocks);
    blocks.finish();
  }

  template <typename Visit>
  void each_live(Visit visit) const {
    for (const Slab& slab : slabs)
      for (uint64_t start : slab.live) visit(Range{start, start + slab.size});
  }

  Host host;
  abi::Mapping mapping{kStart, kStart + 10 * kPage, wire::kRead | wire::kWrite, 0, 0, 0};
  Space space{&mapping, 1};
  BlockMap blocks{space, map_memory};
  std::vector<Slab> slabs;
};

std::vector<Range> taken(BlockMap& blocks) {
  std::vector<Range> found;
  for (uint64_t base = kStart; base < kStart + 10 * kPage; base += heaps::kSpan)
    blocks.take_grey(*blocks.cluster_of(base), base, [&](Range block) { found.push_back(block); });
  return found;
}

CASE(every_byte_of_a_slot_is_its_own) {
  Slabs all;
  for (const Slab& slab : all.slabs) {
    for (uint64_t start : slab.live) {
      CHECK(all.blocks.is_live(start));
      CHECK_EQ(all.blocks.end_of(start), start + slab.size);
      CHECK(all.blocks.ends_at(start, start + slab.size));
      CHECK(!all.blocks.ends_at(start, start + slab.size - 8));
      CHECK(!all.blocks.ends_at(start, start + slab.size + 8));
      for (uint64_t at = start; at < start + slab.size; ++at)
        CHECK_EQ(all.blocks.block_of(at), start);
    }
    for (uint64_t start : slab.free) {
      CHECK(!all.blocks.is_live(start));
      for (uint64_t at = start; at < start + slab.size; ++at) CHECK_EQ(all.blocks.block_of(at), 0u);
    }
  }
}

CASE(slots_are_listed_in_the_order_of_their_addresses) {
  Slabs all;
  std::vector<uint64_t> expected, seen;
  all.each_live([&](Range block) { expected.push_back(block.start); });
  all.blocks.each_live([&](uint64_t block) { seen.push_back(block); });
  CHECK(seen == expected);
}

// A mark and a postponed scan belong to one slot, whatever its neighbours are.
CASE(a_grey_slot_leaves_its_neighbours_alone) {
  Slabs all;
  std::vector<uint64_t> grey, white;
  std::vector<Range> expected;
  all.each_live([&](Range block) {
    bool chosen = block.start / 8 % 5 < 2;
    (chosen ? grey : white).push_back(block.start);
    if (chosen) expected.push_back(block);
  });
  for (uint64_t start : grey) {
    const heaps::Cluster& cluster = *all.blocks.cluster_of(start);
    CHECK(heaps::make_grey(cluster, start));
    CHECK(!heaps::make_grey(cluster, start));
  }
  for (const Slab& slab : all.slabs)
    for (uint64_t start : slab.free) CHECK_EQ(all.blocks.block_of(start), 0u);
  for (uint64_t start : grey) CHECK(all.blocks.is_live(start) && all.blocks.is_marked(start));
  for (uint64_t start : white) CHECK(all.blocks.is_live(start) && !all.blocks.is_marked(start));
  all.each_live([&](Range block) {
    CHECK_EQ(all.blocks.end_of(block.start), block.end);
    CHECK_EQ(all.blocks.block_of(block.end - 1), block.start);
  });
  std::vector<Range> found = taken(all.blocks);
  CHECK_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK_EQ(found[i].start, expected[i].start);
    CHECK_EQ(found[i].end, expected[i].end);
  }
  CHECK(taken(all.blocks).empty());
  for (uint64_t start : grey) CHECK(all.blocks.is_marked(start));
}

// A slot's last word belongs to the program, and a word that leads there is a pointer: nothing here
// resembles a chunk.
CASE(nothing_is_left_behind_by_lists_of_chunks) {
  Slabs all;
  all.each_live([&](Range block) {
    for (uint64_t at = block.start; at < block.end; at += 8) CHECK(!all.blocks.is_link(at));
  });
}

CASE(marks_and_drops_in_one_granule) {
  Slabs all;
  uint64_t first = all.slabs[0].live[0], next = all.slabs[0].live[2];
  CHECK_EQ(next, first + 24);
  CHECK_EQ(all.blocks.mark(next + 7), next);
  CHECK_EQ(all.blocks.mark(next), 0u);
  all.blocks.clear_mark(next);
  CHECK_EQ(all.blocks.mark(next), next);
  all.blocks.drop_live(next);
  CHECK_EQ(all.blocks.block_of(next), 0u);
  CHECK_EQ(all.blocks.end_of(all.slabs[0].live[1]), next);
  all.blocks.drop_edges(first, first + 8);
  CHECK(!all.blocks.is_live(first));
  CHECK(all.blocks.is_live(all.slabs[0].live[1]));
}

// Chunks keep their tails, and what free lists of chunks leave behind is recognised, next to slots
// that have neither.
CASE(chunks_and_slots_in_one_map) {
  Host host;
  abi::Mapping mapping{kStart, kStart + 4 * kPage, wire::kRead | wire::kWrite, 0, 0, 0};
  BlockMap blocks(Space(&mapping, 1), map_memory);
  // The first edge of a span ends a block of the previous span.
  for (uint64_t start : {0x10, 0x30, 0x200, 0x3f0}) blocks.add_live(kStart + start);
  blocks.add_boundary(kStart + 0x280);
  blocks.add_boundary(kStart + kPage);
  CHECK(blocks.regions.add({kStart, kStart + kPage, wire::kThreadHeap, 1, 8, 0}));
  Slab slab(kStart + kPage, 8, kPage / 8);
  slab.add_to(blocks);
  blocks.finish();
  struct {
    uint64_t start, end;
  } chunks[] = {{0x10, 0x28}, {0x30, 0x1f8}, {0x200, 0x278}, {0x3f0, kPage - 8}};
  for (auto [start, end] : chunks) {
    CHECK_EQ(blocks.end_of(kStart + start), kStart + end);
    for (uint64_t at = start; at < end; ++at)
      CHECK_EQ(blocks.block_of(kStart + at), kStart + start);
    for (uint64_t at = end; at < end + 8; ++at)
      CHECK_EQ(blocks.block_of(kStart + at) >= kStart + kPage, at >= kPage);
  }
  CHECK_EQ(blocks.block_of(kStart + 0x280), 0u);
  CHECK(blocks.is_link(kStart + 0x20));
  CHECK(blocks.is_link(kStart + kPage - 16));
  CHECK(!blocks.is_link(kStart + 0x40));
  CHECK(!blocks.is_link(slab.live[4]));
}

CASE(random_slots_are_marked_as_the_model_says) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    context = "seed " + std::to_string(seed);
    std::mt19937_64 random(seed);
    Host host;
    host.control.wide_words = seed % 2 != 0 && arch::has_lanes();
    std::vector<std::size_t> words(1 + random() % 1000);
    for (std::size_t& count : words) count = 1 + random() % (random() % 10 == 0 ? 200 : 3);
    Graph graph(words, Layout::kSlots);
    graph.connect_randomly(random);
    graph.mark(seed / 2 % 2 == 0 ? sweeper::SharedWorklist::kMinMany : 1);
    graph.check_marks();
    for (std::size_t block = 0; block < graph.size(); ++block)
      CHECK_EQ(graph.blocks.end_of(graph.start(block)), graph.start(block) + graph.bytes(block));
  }
}

// The maximum of blocks in a span, all put off at once.
CASE(a_list_of_slots_of_one_word) {
  Host host;
  constexpr std::size_t kSlots = 30000;
  std::vector<std::size_t> words(kSlots, 1);
  words.push_back(kSlots / 2);
  Graph graph(words, Layout::kSlots);
  for (std::size_t slot = 0; slot < kSlots / 2; ++slot) graph.point(kSlots, slot, 2 * slot);
  for (std::size_t slot = 0; slot < kSlots; slot += 4)
    graph.point(slot, 0, (slot + 12345) % kSlots);
  graph.root(kSlots);
  graph.mark(1);
  graph.check_marks();
}

}  // namespace
}  // namespace reachscan::tests
