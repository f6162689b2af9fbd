// What a program has declared about its memory, in a table that a scan finds.
#include "library/annotations.hpp"

#include "sweep.hpp"

namespace reachscan::tests {
namespace {

using heaps::kPage;
using library::Kind;

constexpr uint64_t kTable = kWorld + (6ull << 30);

struct AnnotatedSweep : Sweep {
  AnnotatedSweep() : Sweep("2.43"), header(*reinterpret_cast<library::Header*>(kTable)) {
    scene.memory.map(kTable - kPage, kPage, 0);
    scene.memory.map(kTable, library::kBytes);
    scene.memory.describe(kTable + library::kBytes, kPage, 0, 0);
    header.magic = library::kMagic;
    header.layout = library::kLayout;
    header.bytes = library::kBytes;
    header.ready = 1;
  }

  void add(Kind kind, uint64_t start, uint64_t size) {
    uint64_t at = library::home_of(start);
    auto* entries = reinterpret_cast<library::Entry*>(&header + 1);
    while (entries[at].kind_size != 0) at = (at + 1) % library::kEntries;
    entries[at] = {start, library::Entry::pack(kind, size)};
    uint64_t page = at / library::kPageEntries;
    header.used[page / 64] |= uint64_t{1} << page % 64;
  }

  std::set<uint64_t> leaks_but(uint64_t block) const {
    std::set<uint64_t> left = all();
    left.erase(block);
    return left;
  }

  library::Header& header;
};

CASE(an_ignored_block_is_no_leak) {
  AnnotatedSweep sweep;
  sweep.add(Kind::kIgnored, sweep.scene.leaks[0], 0);
  sweep.run();
  sweep.check_leaks(sweep.leaks_but(sweep.scene.leaks[0]));
}

// As in a core file that gdb wrote.
CASE(the_page_in_front_of_the_table_may_be_one_to_read) {
  AnnotatedSweep sweep;
  sweep.scene.memory.protect(kTable - kPage, kPage, wire::kRead);
  sweep.add(Kind::kIgnored, sweep.scene.leaks[0], 0);
  sweep.run();
  sweep.check_leaks(sweep.leaks_but(sweep.scene.leaks[0]));
}

CASE(what_is_removed_or_unfinished_says_nothing) {
  AnnotatedSweep sweep;
  sweep.add(Kind::kRemoved, sweep.scene.leaks[0], 0);
  sweep.add(Kind::kBusy, sweep.scene.leaks[0], 0);
  sweep.run();
  sweep.check_leaks(sweep.leaks_but(0));
}

CASE(a_table_that_is_not_ready_is_the_programs_memory) {
  AnnotatedSweep sweep;
  sweep.header.ready = 0;
  sweep.add(Kind::kRemoved, sweep.scene.leaks[0], 0);
  sweep.run();
  sweep.check_leaks(sweep.leaks_but(sweep.scene.leaks[0]));
}

CASE(memory_that_is_not_to_be_seen_keeps_nothing_alive) {
  AnnotatedSweep sweep;
  uint64_t page = kTable + (1ull << 30);
  sweep.scene.memory.map(page, kPage);
  sweep.scene.memory.put(page + 8, sweep.scene.leaks[0]);
  sweep.scene.memory.put(page + 64, sweep.scene.leaks[1]);
  sweep.add(Kind::kUnseen, page, 32);
  sweep.run();
  sweep.check_leaks(sweep.leaks_but(sweep.scene.leaks[1]));
}

// The notes on a pool that is being made tell where it starts, but not yet where it ends.
CASE(notes_on_a_pool_keep_nothing_alive) {
  AnnotatedSweep sweep;
  uint64_t notes = kTable + (1ull << 30);
  sweep.scene.memory.map(notes, kPage);
  reinterpret_cast<library::Pool*>(notes)->start = sweep.scene.leaks[0];
  sweep.add(Kind::kPool, notes, kPage);
  sweep.run();
  sweep.check_leaks(sweep.leaks_but(0));
}

CASE(a_root_region_may_lie_in_a_block_and_reach_beyond_all_memory) {
  AnnotatedSweep sweep;
  uint64_t holder = sweep.scene.leaks[0], held = sweep.scene.leaks[1];
  sweep.scene.memory.put(holder, held);
  sweep.add(Kind::kRoot, holder, 8);
  sweep.add(Kind::kRoot, ~uint64_t{0} - 64, 4096);
  sweep.add(Kind::kRoot, kTable - kPage, kPage);  // unreadable
  sweep.run();
  sweep.check_leaks(sweep.leaks_but(held));
}

CASE(lost_annotations_are_a_warning) {
  AnnotatedSweep sweep;
  sweep.header.lost = 3;
  sweep.run();
  CHECK_EQ(sweep.host.frames(wire::kWarning).size(), 1u);
}

}  // namespace
}  // namespace reachscan::tests
