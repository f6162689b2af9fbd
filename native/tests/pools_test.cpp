// The walker for a program's own pools on images: in memory of every kind, stale, hostile.
#include <map>
#include <memory>
#include <string>

#include "check.hpp"
#include "graph.hpp"
#include "heaps/pools/walker.hpp"
#include "on_threads.hpp"

namespace reachscan::tests {
namespace {

using heaps::kPage;
using heaps::Region;
using library::Kind;

constexpr uint64_t kTable = kWorld + (6ull << 30);
constexpr uint64_t kNotes = kWorld + (7ull << 30);  // the pools' bitmaps
constexpr uint64_t kHeap = kWorld + (1ull << 30);
constexpr uint64_t kMapped = kWorld + (2ull << 30);
constexpr uint64_t kTail = 8;  // of the heap's blocks

constexpr unsigned kBlocks = 50;

uint64_t block_at(unsigned number) { return kHeap + 16 + 1008 * number; }

using Blocks = std::map<uint64_t, uint64_t>;

struct Found {
  Blocks blocks;
  std::map<uint64_t, uint64_t> regions;
  uint64_t taken_blocks = 0, taken_bytes = 0;
  bool warned = false;
};

// A heap of blocks of 1000 bytes, as a walker of glibc leaves it, and memory outside the heap.
struct Process {
  Process() : header(*reinterpret_cast<library::Header*>(kTable)) {
    memory.map(kHeap, 16 * kPage);
    memory.map(kMapped, 16 * kPage);
    memory.map(kTable, library::kBytes);
    memory.map(kNotes, 64 * kPage);
  }

  library::Pool& add_pool(uint64_t start, uint64_t bytes) {
    auto* pool = reinterpret_cast<library::Pool*>(next_notes);
    pool->start = start;
    pool->end = start + bytes;
    add_entry(next_notes, library::pool_bytes(start, start + bytes));
    next_notes += 8 * kPage;
    return *pool;
  }
  void add_entry(uint64_t start, uint64_t bytes) {
    uint64_t at = library::home_of(start);
    auto* entries = reinterpret_cast<library::Entry*>(&header + 1);
    while (entries[at].kind_size != 0) at = (at + 1) % library::kEntries;
    entries[at] = {start, library::Entry::pack(Kind::kPool, bytes)};
    uint64_t page = at / library::kPageEntries;
    header.used[page / 64] |= uint64_t{1} << page % 64;
  }
  static void add_object(library::Pool& pool, uint64_t start, uint64_t end) {
    pool.bits(start).starts |= uint64_t{1} << start / 8 % 64;
    pool.bits(end).ends |= uint64_t{1} << end / 8 % 64;
  }

  Found walk() {
    heaps::BlockMap blocks(memory.space(), sweeper::map_memory);
    for (unsigned i = 0; i < kBlocks; ++i) blocks.add_live(block_at(i));
    blocks.add_boundary(block_at(kBlocks));
    blocks.add_boundary(kHeap + 16 * kPage);
    blocks.add_region({kHeap, kHeap + 16 * kPage, wire::kProgramBreak, 0, kTail, 0});
    libc::Threads none{nullptr, 0, {sweeper::map_memory, 1}};
    heaps::pools::Walker walker(memory.space(), none, sweeper::map_memory, &header);
    Found found;
    if (walker.is_present()) CHECK(walker.enumerate(blocks, alone, 1).fine());
    blocks.finish();
    found.warned = walker.warning().code != nullptr;
    uint64_t bytes = 0, count = 0;
    for (const heaps::pools::Divided& block : walker.divided) {
      found.taken_blocks += block.is_whole;
      found.taken_bytes += block.bytes;
      if (block.arena == 0) continue;  // an object of another pool
      bytes += block.bytes;
      count += block.is_whole;
    }
    for (const Region& region : blocks.regions) found.regions[region.start] = region.end;
    blocks.each_live([&](uint64_t block) {
      uint64_t end = blocks.end_of(block);
      const Region* region = blocks.region_of(block);
      bool of_pool = region != nullptr && region->kind == wire::kProgramPool;
      if (of_pool) bytes += end - block;
      count += of_pool;
      found.blocks[block] = end;
      CHECK_EQ(blocks.block_of(end - 1), block);
    });
    CHECK_EQ(walker.totals.blocks, count);
    CHECK_EQ(walker.totals.bytes, bytes);
    return found;
  }

  Host host;
  Memory memory;
  library::Header& header;
  uint64_t next_notes = kNotes;
};

Blocks heap_blocks() {
  Process process;
  return process.walk().blocks;
}

CASE(objects_are_blocks_wherever_the_pool_begins) {
  Blocks expected = heap_blocks();
  Process process;
  for (uint64_t offset : {0, 8, 504, 4096 - 8}) {
    uint64_t start = kMapped + kPage * expected.size() / 8 + offset;
    library::Pool& pool = process.add_pool(start, 1600);
    for (uint64_t at = start; at + 8 <= start + 1600; at += 200) {
      Process::add_object(pool, at, at + 8);
      Process::add_object(pool, at + 8, at + 192);
      expected[at] = at + 8;
      expected[at + 8] = at + 192;
    }
  }
  Found found = process.walk();
  CHECK(found.blocks == expected);
  CHECK(!found.warned && found.taken_bytes == 0);
}

CASE(a_pool_divides_the_block_that_it_lies_in) {
  Blocks expected = heap_blocks();
  Process process;
  uint64_t holder = block_at(5), start = holder + 24, end = holder + 600;
  Process::add_object(process.add_pool(start, end - start), start, start + 40);
  Found found = process.walk();
  expected[holder] = start;
  expected[start] = start + 40;
  CHECK(found.blocks == expected);
  CHECK_EQ(found.taken_blocks, 0u);
  CHECK_EQ(found.taken_bytes, 1000u - 24);
  // The rest of the block after the pool is in no region, so it is a root.
  CHECK_EQ(found.regions.at(kHeap), holder);
  CHECK_EQ(found.regions.at(holder), start);
  CHECK_EQ(found.regions.at(start), end);
  CHECK_EQ(found.regions.at(block_at(6)), kHeap + 16 * kPage);
}

CASE(a_block_that_is_a_pool_as_a_whole_is_no_block) {
  Blocks expected = heap_blocks();
  Process process;
  process.add_pool(block_at(5), 1000);
  Found found = process.walk();
  expected.erase(block_at(5));
  CHECK(found.blocks == expected);
  CHECK_EQ(found.taken_blocks, 1u);
  CHECK_EQ(found.taken_bytes, 1000u);
}

CASE(a_pool_may_lie_in_an_object_of_another) {
  Blocks expected = heap_blocks();
  Process process;
  library::Pool& inner = process.add_pool(kMapped + 80, 256);
  library::Pool& outer = process.add_pool(kMapped, 4096);
  Process::add_object(outer, kMapped + 64, kMapped + 1024);
  Process::add_object(outer, kMapped + 1024, kMapped + 2048);
  Process::add_object(inner, kMapped + 96, kMapped + 128);
  Found found = process.walk();
  expected[kMapped + 64] = kMapped + 80;
  expected[kMapped + 96] = kMapped + 128;
  expected[kMapped + 1024] = kMapped + 2048;
  CHECK(found.blocks == expected);
}

// Each of these is ignored and changes nothing.
CASE(what_cannot_be_a_pool_is_ignored) {
  Blocks expected = heap_blocks();
  void (*damages[])(Process&) = {
      [](Process& p) { p.add_pool(block_at(5) + 16, 1000); },     // extends beyond its block
      [](Process& p) { p.add_pool(block_at(5), 2016); },          // several blocks
      [](Process& p) { p.add_pool(kHeap + 15 * kPage, 64); },     // in free memory
      [](Process& p) { p.add_pool(kHeap - 64, 128); },            // not mapped
      [](Process& p) { p.add_pool(kMapped + 4, 64); },            // unaligned
      [](Process& p) { p.add_pool(kMapped, 64).end = kMapped; },  // empty
      [](Process& p) { p.add_pool(kMapped, 64).end += 1ull << 40; },
      [](Process& p) { p.add_pool(kMapped, 64).unknown = 1; },
      [](Process& p) { p.add_entry(kNotes + 64 * kPage, 4096); },  // its bitmap is not mapped
      [](Process& p) { p.add_entry(kNotes + 8, 4096); },
      [](Process& p) { p.add_entry(kNotes, ~uint64_t{0} >> 8); },
      [](Process& p) {
        p.memory.protect(kMapped, kPage, kReadWrite | wire::kShared);
        p.add_pool(kMapped, 64);
      },
      [](Process& p) {
        p.memory.map(kMapped - (1ull << 20), kPage, kReadWrite, abi::kUntouchable);
        p.add_pool(kMapped - (1ull << 20), 64);
      },
  };
  for (auto damage : damages) {
    Process process;
    damage(process);
    Found found = process.walk();
    CHECK(found.blocks == expected);
    CHECK(found.warned);
  }
}

CASE(a_pool_that_is_being_made_is_none_yet) {
  Blocks expected = heap_blocks();
  Process process;
  process.add_pool(kMapped, 64).end = 0;
  Found found = process.walk();
  CHECK(found.blocks == expected && !found.warned);
}

// Bits that no library would write: beyond the pool, ends without starts, all set.
CASE(any_bits_stay_within_the_pool) {
  Blocks expected = heap_blocks();
  Process process;
  uint64_t start = kMapped + 72, end = kMapped + 1208;
  library::Pool& pool = process.add_pool(start, end - start);
  for (uint64_t at = kMapped; at < kMapped + 1536; at += 512) pool.bits(at) = {~0ull, ~0ull};
  for (uint64_t at = start; at < end; at += 8) expected[at] = at + 8;
  CHECK(process.walk().blocks == expected);
}

}  // namespace
}  // namespace reachscan::tests
