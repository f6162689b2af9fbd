// What counts as a pointer into a block, at every kind of edge.
#include "memory/block_map.hpp"

#include <vector>

#include "check.hpp"
#include "hosted.hpp"

namespace reachscan::tests {
namespace {

using heaps::BlockMap;
using heaps::kPage;
using heaps::Space;
using sweeper::map_memory;

constexpr uint64_t kStart = 0x7f0000000000;
constexpr uint64_t kChunk = 64 << 10;
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kFar = 300ull << 30;  // more than one bitmap covers

abi::Mapping anonymous(uint64_t start, uint64_t bytes) {
  return {start, start + bytes, wire::kRead | wire::kWrite, 0, 0, 0};
}

void add_region(BlockMap& blocks, uint64_t start, uint64_t end, uint32_t tail = 8) {
  blocks.add_boundary(end);
  CHECK(blocks.regions.push({start, end, wire::kMapped, 0, tail, 0}));
}

// Returns the block that a word in the head of a block leads to, with its low bits left as they
// are.
uint64_t block_from_head(const BlockMap& blocks, uint64_t value) {
  return blocks.block_in(*blocks.cluster_of(value), value);
}

// Checks that every byte of [start, end) belongs to the block `start`, and the bytes around it do
// not.
void check_extent(const BlockMap& blocks, uint64_t start, uint64_t end) {
  CHECK(blocks.is_live(start));
  CHECK_EQ(blocks.end_of(start), end);
  uint64_t step = end - start > kMiB ? 4093 : 1;
  for (uint64_t at = start; at < end; at += step) CHECK_EQ(blocks.block_of(at), start);
  CHECK_EQ(blocks.block_of(end - 1), start);
  CHECK(blocks.block_of(start - 1) != start);
  CHECK_EQ(blocks.block_of(end), uint64_t{0});
}

CASE(every_byte_of_a_block_and_none_around_it) {
  Host host;
  abi::Mapping m = anonymous(kStart, kPage);
  BlockMap blocks(Space(&m, 1), map_memory);
  blocks.add_live(kStart + 0x10);
  blocks.add_live(kStart + 0x30);
  blocks.add_boundary(kStart + 0x100);
  blocks.add_live(kStart + 0x200);
  add_region(blocks, kStart, kStart + kPage);
  blocks.finish();
  check_extent(blocks, kStart + 0x10, kStart + 0x28);
  check_extent(blocks, kStart + 0x30, kStart + 0xf8);
  check_extent(blocks, kStart + 0x200, kStart + kPage - 8);
  for (uint64_t at = kStart; at < kStart + 0x10; ++at) CHECK_EQ(blocks.block_of(at), 0u);
  for (uint64_t at = kStart + 0xf8; at < kStart + 0x200; ++at) CHECK_EQ(blocks.block_of(at), 0u);
  CHECK_EQ(block_from_head(blocks, kStart + 0xf8), 0u);
  CHECK_EQ(block_from_head(blocks, kStart + 0xf7), kStart + 0x30);
}

CASE(values_that_are_no_addresses_of_a_heap) {
  Host host;
  abi::Mapping m = anonymous(kStart, kChunk);
  BlockMap blocks(Space(&m, 1), map_memory);
  blocks.add_live(kStart + 16);
  add_region(blocks, kStart, kStart + kPage);
  blocks.finish();
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, kStart - 1, kStart + kChunk, ~uint64_t{0},
                         uint64_t{1} << 63 | (kStart + 16)}) {
    CHECK(!blocks.may_point(value));
    CHECK_EQ(blocks.block_of(value), 0u);
    CHECK_EQ(blocks.mark(value), 0u);
    CHECK(!blocks.is_live(value));
  }
  CHECK(!blocks.is_live(kStart + 17));
  CHECK(!blocks.is_live(kStart + 32));
}

CASE(dropped_blocks_are_boundaries) {
  Host host;
  abi::Mapping m = anonymous(kStart, kPage);
  BlockMap blocks(Space(&m, 1), map_memory);
  for (uint64_t at = 0x10; at < 0x100; at += 0x20) blocks.add_live(kStart + at);
  blocks.drop_live(kStart + 0x50);
  add_region(blocks, kStart, kStart + 0x100);
  blocks.finish();
  check_extent(blocks, kStart + 0x30, kStart + 0x48);
  CHECK_EQ(blocks.block_of(kStart + 0x50), 0u);
  CHECK_EQ(blocks.block_of(kStart + 0x60), 0u);
  check_extent(blocks, kStart + 0x70, kStart + 0x88);
}

CASE(a_mark_is_given_once) {
  Host host;
  abi::Mapping m = anonymous(kStart, kPage);
  BlockMap blocks(Space(&m, 1), map_memory);
  blocks.add_live(kStart + 0x10);
  blocks.add_live(kStart + 0x50);
  add_region(blocks, kStart, kStart + 0x100);
  blocks.finish();
  CHECK_EQ(blocks.mark(kStart + 0x31), kStart + 0x10);
  CHECK_EQ(blocks.mark(kStart + 0x10), 0u);
  CHECK(blocks.is_marked(kStart + 0x10));
  CHECK(!blocks.is_marked(kStart + 0x50));
  std::vector<uint64_t> left;
  blocks.each_unmarked([&](uint64_t block) { left.push_back(block); });
  CHECK(left == std::vector<uint64_t>{kStart + 0x50});
  blocks.clear_mark(kStart + 0x10);
  CHECK_EQ(blocks.mark(kStart + 0x10), kStart + 0x10);
  check_extent(blocks, kStart + 0x10, kStart + 0x48);
}

// The start of a block may be many carries below the pointer.
CASE(blocks_of_many_mebibytes) {
  Host host;
  abi::Mapping m = anonymous(kStart, 64 * kMiB);
  BlockMap blocks(Space(&m, 1), map_memory);
  uint64_t sizes[] = {kChunk - 16, 20 * kMiB + 48, kChunk, kChunk + 16, 3 * kMiB};
  uint64_t at = kStart + 16;
  for (uint64_t size : sizes) {
    blocks.add_live(at);
    at += size;
  }
  blocks.add_boundary(at);
  add_region(blocks, kStart, kStart + 64 * kMiB);
  blocks.finish();
  at = kStart + 16;
  for (uint64_t size : sizes) {
    check_extent(blocks, at, at + size - 8);
    at += size;
  }
  CHECK_EQ(blocks.block_of(kStart + 50 * kMiB), 0u);
}

// A start at the first or last granule of a pair of words, of 64 KiB, of a page.
CASE(starts_next_to_powers_of_two) {
  Host host;
  for (uint64_t edge : {uint64_t{1024}, kPage, kChunk, kMiB}) {
    for (uint64_t before : {uint64_t{0}, uint64_t{16}, uint64_t{32}}) {
      for (uint64_t after : {32 - before, uint64_t{32}, uint64_t{48}}) {
        abi::Mapping m = anonymous(kStart, 2 * kMiB);
        BlockMap blocks(Space(&m, 1), map_memory);
        uint64_t first = kStart + edge - before, second = kStart + edge + after;
        blocks.add_live(kStart + 16);
        blocks.add_live(first);
        blocks.add_live(second);
        blocks.add_boundary(second + 64);
        add_region(blocks, kStart, kStart + 2 * kMiB);
        blocks.finish();
        check_extent(blocks, kStart + 16, first - 8);
        check_extent(blocks, first, second - 8);
        check_extent(blocks, second, second + 56);
      }
    }
  }
}

// Up to 2.42, a mapped block ends with its pages; 2.43 leaves 8 bytes.
CASE(mapped_blocks_side_by_side_keep_their_tails) {
  Host host;
  abi::Mapping m = anonymous(kStart, 16 * kPage);
  BlockMap blocks(Space(&m, 1), map_memory);
  uint32_t tails[] = {0, 8, 0, 0, 8, 8};
  uint64_t at = kStart;
  for (uint32_t tail : tails) {
    blocks.add_live(at + 16);
    add_region(blocks, at, at + 2 * kPage, tail);
    at += 2 * kPage;
  }
  blocks.finish();
  at = kStart;
  for (uint32_t tail : tails) {
    check_extent(blocks, at + 16, at + 2 * kPage - tail);
    CHECK_EQ(blocks.block_of(at + 15), 0u);
    at += 2 * kPage;
  }
}

// A block of an arena may end at a page boundary where no region ends.
CASE(a_page_boundary_inside_an_arena_is_no_tail) {
  Host host;
  abi::Mapping m = anonymous(kStart, 4 * kPage);
  BlockMap blocks(Space(&m, 1), map_memory);
  blocks.add_live(kStart + 16);
  blocks.add_live(kStart + kPage);
  add_region(blocks, kStart, kStart + 2 * kPage);
  blocks.add_live(kStart + 2 * kPage + 16);
  add_region(blocks, kStart + 2 * kPage, kStart + 4 * kPage, 0);
  blocks.finish();
  check_extent(blocks, kStart + 16, kStart + kPage - 8);
  check_extent(blocks, kStart + kPage, kStart + 2 * kPage - 8);
  check_extent(blocks, kStart + 2 * kPage + 16, kStart + 4 * kPage);
}

CASE(a_gap_between_regions_is_nobodys) {
  Host host;
  abi::Mapping mappings[] = {anonymous(kStart, 2 * kPage), anonymous(kStart + 10 * kMiB, kPage)};
  BlockMap blocks(Space(mappings, 2), map_memory);
  blocks.add_live(kStart + 16);
  add_region(blocks, kStart, kStart + kPage + 0x30);
  blocks.add_live(kStart + 10 * kMiB + 16);
  add_region(blocks, kStart + 10 * kMiB, kStart + 10 * kMiB + kPage);
  blocks.finish();
  check_extent(blocks, kStart + 16, kStart + kPage + 0x28);
  check_extent(blocks, kStart + 10 * kMiB + 16, kStart + 10 * kMiB + kPage - 8);
  for (uint64_t at = kStart + kPage + 0x28; at < kStart + 10 * kMiB + 16; at += 8)
    CHECK_EQ(blocks.block_of(at), 0u);
}

// One pair of words can hold the end of one region and the start of the next.
CASE(regions_within_one_pair_of_words) {
  Host host;
  abi::Mapping m = anonymous(kStart, kChunk);
  BlockMap blocks(Space(&m, 1), map_memory);
  blocks.add_live(kStart + 0x20);
  add_region(blocks, kStart, kStart + 0x80);
  blocks.add_live(kStart + 0x110);
  add_region(blocks, kStart + 0x100, kStart + 0x200);
  blocks.finish();
  std::vector<uint64_t> seen;
  blocks.each_live([&](uint64_t block) { seen.push_back(block); });
  CHECK((seen == std::vector<uint64_t>{kStart + 0x20, kStart + 0x110}));
  CHECK_EQ(blocks.block_of(kStart + 0x90), 0u);
}

// A region that ends where all memory ends: its boundary is outside every bitmap's range.
CASE(a_region_at_the_end_of_a_cluster) {
  Host host;
  abi::Mapping mappings[] = {anonymous(kStart, kChunk), anonymous(kStart + kFar, kChunk)};
  BlockMap blocks(Space(mappings, 2), map_memory);
  for (const abi::Mapping& m : mappings) {
    blocks.add_live(m.start + 16);
    blocks.add_live(m.end - 32);
    add_region(blocks, m.start, m.end, 0);
  }
  blocks.finish();
  CHECK(!blocks.may_point(kStart + kChunk));
  // In the fine form, all blocks of a region have the same tail.
  uint64_t between = heaps::kFine ? 0 : 8;
  for (const abi::Mapping& m : mappings) {
    for (uint64_t at = m.start + 16; at < m.end - 32; ++at)
      CHECK_EQ(blocks.block_of(at), at < m.end - 32 - between ? m.start + 16 : 0);
    CHECK_EQ(blocks.end_of(m.start + 16), m.end - 32 - between);
    CHECK_EQ(blocks.block_of(m.end - 1), m.end - 32);
    CHECK_EQ(blocks.end_of(m.end - 32), m.end);
    CHECK_EQ(blocks.block_of(m.end), 0u);
  }
}

// More places far apart than there are bitmaps: the last bitmap covers the rest.
CASE(many_places_far_apart) {
  Host host;
  std::vector<abi::Mapping> mappings;
  for (uint64_t i = 0; i < 12; ++i) mappings.push_back(anonymous(kPage + i * kFar, 3 * kPage));
  BlockMap blocks(Space(mappings.data(), mappings.size()), map_memory);
  for (const abi::Mapping& m : mappings) {
    blocks.add_live(m.start + 16);
    add_region(blocks, m.start, m.end, 0);
  }
  blocks.finish();
  std::size_t count = 0;
  blocks.each_live([&](uint64_t) { ++count; });
  CHECK_EQ(count, mappings.size());
  for (const abi::Mapping& m : mappings) check_extent(blocks, m.start + 16, m.end);
}

CASE(only_private_anonymous_memory_is_covered) {
  Host host;
  constexpr uint32_t kReadWrite = wire::kRead | wire::kWrite;
  abi::Mapping mappings[] = {
      {kStart, kStart + kChunk, kReadWrite, abi::kFileBacked, 1, 0},
      {kStart + kFar, kStart + kFar + kChunk, kReadWrite | wire::kShared, 0, 0, 0},
      {kStart + 2 * kFar, kStart + 2 * kFar + kChunk, kReadWrite, abi::kMainStack, 0, 0},
      {kStart + 3 * kFar, kStart + 3 * kFar + kChunk, 0, 0, 0, 0}};
  BlockMap blocks(Space(mappings, 4), map_memory);
  for (int i = 0; i < 3; ++i) CHECK(!blocks.may_point(mappings[i].start));
  // A heap remains a heap if the program protects its pages.
  CHECK(blocks.may_point(mappings[3].start));
}

CASE(a_process_without_anonymous_memory) {
  Host host;
  BlockMap blocks(Space(nullptr, 0), map_memory);
  blocks.finish();
  CHECK_EQ(blocks.block_of(kStart), 0u);
  blocks.each_live([](uint64_t) { CHECK(false); });
}

}  // namespace
}  // namespace reachscan::tests
