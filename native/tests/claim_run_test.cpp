// A large run that is walked from several places at once gives the same result as one walk from its
// start. Also run under the thread sanitizer.
#include "heaps/glibc/claim_run.hpp"

#include <random>

#include "check.hpp"
#include "glibc_image.hpp"
#include "on_threads.hpp"

namespace reachscan::tests {
namespace {

using heaps::BlockMap;
using heaps::Region;
using heaps::glibc::claim_run;
using heaps::glibc::Run;

constexpr uint64_t kBytes = 24 << 20;

void* map_zeros(uint64_t bytes) { return std::calloc(bytes + 1, 1); }

struct Heap {
  Heap() { memory.map(kWorld, kBytes); }

  uint64_t fill(uint64_t end, uint64_t smallest, uint64_t range) {
    while (chunks.at() + smallest + range < end) {
      uint64_t size = heaps::align_up(smallest + random() % range, heaps::glibc::kChunkAlignment);
      uint64_t user = chunks.live(size);
      memory.put(user + words() % (size - 8) / 8 * 8, kWorld + words() % (2 * kBytes));
      // glibc would merge two adjacent free chunks.
      if (random() % 4 == 0) {
        chunks.free(size);
        chunks.live(size);
      }
    }
    return chunks.at();
  }

  void check(const Blocks& expected, bool valid, uint64_t end, uint64_t top) {
    BlockMap blocks(memory.space(), map_zeros);
    if (arch::has_lanes()) blocks.find_blanks();
    heaps::Totals totals;
    Run run = claim_run(kWorld, kWorld + kBytes, top, Region{kWorld, 0, 0, 0, 8, 0},
                        {blocks, totals, on_three_threads});
    CHECK_EQ(run.valid, valid);
    if (!valid) {
      CHECK_EQ(run.failed_at, end);
      return;
    }
    CHECK_EQ(run.end, end);
    CHECK_EQ(run.reached_top, top != 0);
    CHECK_EQ(run.totals.blocks, expected.size());
    Blocks found;
    uint64_t bytes = 0;
    blocks.finish();
    blocks.each_live([&](uint64_t block) { found[block] = blocks.end_of(block) - block; });
    for (const auto& [block, size] : found) bytes += size;
    CHECK_EQ(run.totals.bytes, bytes);
    CHECK(found == expected);
    check_edges(blocks, end);
    spans_with_blanks = check_blanks(blocks);
  }

  // Where any granule is noted as blank, exactly those without a word in the hull are. Returns in
  // how many spans.
  static uint64_t check_blanks(const BlockMap& blocks) {
    uint64_t spans = 0;
    for (uint64_t base = kWorld; base < kWorld + kBytes; base += heaps::kSpan) {
      const uint64_t noted = *blocks.cluster_of(base)->blanks_at(base);
      uint64_t inside = 0;
      for (uint64_t at = base; at < base + heaps::kSpan; at += heaps::kWord)
        if (blocks.hull().contains(heaps::word(at))) inside |= 1ull << heaps::bit_of(at);
      if (noted != 0) CHECK_EQ(noted, ~inside);
      spans += noted != 0;
    }
    return spans;
  }

  // Discarded walks must leave no trace.
  void check_edges(const BlockMap& blocks, uint64_t end) {
    for (uint64_t at = heaps::align_up(end, heaps::kGranule) + heaps::kGranule;
         at < kWorld + kBytes; at += heaps::kGranule)
      CHECK(!blocks.is_live(at) && !blocks.is_marked(at));
  }

  Memory memory;
  Chunks chunks{memory, kWorld};
  std::mt19937_64 random{7}, words{8};
  uint64_t spans_with_blanks = 0;  // in the last check
};

CASE(chunks_of_all_sizes) {
  for (uint64_t range : {16ull, 100ull, 5000ull, 300'000ull, 3'000'000ull}) {
    context = "chunks of 32 to " + std::to_string(32 + range) + " bytes";
    Heap heap;
    uint64_t top = heap.fill(kWorld + kBytes - 4096, 32, range);
    heap.chunks.top(kWorld + kBytes);
    heap.check(heap.chunks.blocks, true, kWorld + kBytes, top);
    // Of large chunks, none is noted.
    if (arch::has_lanes() && range <= 100)
      CHECK(heap.spans_with_blanks > kBytes / heaps::kSpan / 2);
  }
}

// Memory that held many blocks before and holds one now: a guess finds old chunks that line up.
CASE(chunks_of_old_inside_large_blocks) {
  for (uint64_t large : {700ull << 10, 1536ull << 10, 5ull << 20, 20ull << 20}) {
    context = "blocks of " + std::to_string(large);
    Heap heap;
    heap.fill(kWorld + kBytes - 4096, 32, 500);
    Chunks chunks(heap.memory, kWorld);
    while (chunks.at() + large + 4096 < kWorld + kBytes) chunks.live(large);
    uint64_t top = chunks.top(kWorld + kBytes);
    heap.check(chunks.blocks, true, kWorld + kBytes, top);
  }
}

CASE(chunks_of_old_behind_the_end_of_the_run) {
  for (uint64_t megabytes = 1; megabytes < 20; megabytes += 3) {
    context = std::to_string(megabytes) + " MB and more of old";
    Heap heap;
    heap.fill(kWorld + kBytes - 4096, 32, 500);
    Chunks chunks(heap.memory, kWorld);
    while (chunks.at() < kWorld + (megabytes << 20)) chunks.live(0x1230);
    chunks.end_heap(0x100);
    heap.check(chunks.blocks, true, chunks.at(), 0);
  }
}

// The heap of another arena, already claimed, is where a guess would start.
CASE(another_region_behind_the_end_of_the_run) {
  Heap heap;
  constexpr uint64_t kOther = kWorld + kBytes / 2;
  Chunks chunks(heap.memory, kWorld), others(heap.memory, kOther);
  while (chunks.at() < kOther - 0x2000) chunks.live(0x1230);
  chunks.end_heap(0x100);
  while (others.at() < kWorld + kBytes - 0x1000) others.live(0x90);
  uint64_t top = others.top(kWorld + kBytes);
  BlockMap blocks(heap.memory.space(), map_zeros);
  heaps::Totals totals;
  const heaps::Enumeration found{blocks, totals, on_three_threads};
  CHECK(claim_run(kOther, kWorld + kBytes, top, Region{kOther, 0, 0, 1, 8, 0}, found).valid);
  CHECK(claim_run(kWorld, kWorld + kBytes, 0, Region{kWorld, 0, 0, 0, 8, 0}, found).valid);
  for (const Blocks& expected : {chunks.blocks, others.blocks})
    for (const auto& [block, size] : expected) CHECK(blocks.is_live(block));
}

CASE(damage_anywhere) {
  Heap heap;
  uint64_t top = heap.fill(kWorld + kBytes - 4096, 32, 500);
  heap.chunks.top(kWorld + kBytes);
  auto middle = heap.chunks.blocks.begin();
  for (unsigned part = 0; part < 40; ++part) {
    for (unsigned i = 0; i < heap.chunks.blocks.size() / 41; ++i) ++middle;
    uint64_t chunk = middle->first - kHeader, healthy = heaps::word(chunk + 8);
    context = "damage at " + std::to_string(chunk - kWorld);
    heap.memory.put(chunk + 8, healthy | 1ull << 40);
    heap.check({}, false, chunk, top);
    heap.memory.put(chunk + 8, healthy);
  }
  heap.check(heap.chunks.blocks, true, kWorld + kBytes, top);
}

}  // namespace
}  // namespace reachscan::tests
