// Heaps made to take forever: each of these took minutes, or hours, when the work grew with the
// square of what a program can write. Only the test's time limit detects that; none comes near it.
#include "check.hpp"
#include "heaps/glibc/walker.hpp"
#include "hosted.hpp"
#include "scene.hpp"
#include "sweep.hpp"

namespace reachscan::tests {
namespace {

using heaps::Verdict;
using heaps::glibc::kMapped;
using heaps::glibc::kNonContiguous;

// Memory with contents chosen for each page, in which mp_ counts no block.
struct Maze {
  explicit Maze(uint64_t page_count) : scene(release_named("2.35"), {}), pages(page_count) {
    scene.memory.map(kBlocks, pages * kPage);
    scene.set_mapped(1, 1 << 30);
  }
  uint64_t page(uint64_t number) const { return kBlocks + number * kPage; }
  Scene scene;
  uint64_t pages;
};

CASE(a_mapped_block_in_each_page_and_many_threads) {
  Maze maze(1 << 15);
  for (uint64_t n = 0; n < maze.pages; ++n) maze.scene.glibc.mapped(maze.page(n), 1);
  // A descriptor that names no stack is searched to its end.
  uint64_t thread_pointer = maze.scene.threads[0].thread_pointer;
  maze.scene.threads.resize(1 << 12, {0, 0, thread_pointer});
  Found found = walk(maze.scene);
  CHECK_EQ(found.mapped_found, maze.pages);
}

// Each header says that its block starts with the first page.
CASE(mapped_blocks_that_overlap) {
  Maze maze(1 << 16);
  maze.scene.memory.put(maze.page(0) + 8, kPage | kMapped);
  for (uint64_t n = 1; n + 1 < maze.pages; ++n) {
    uint64_t header = maze.page(n) - 16;
    maze.scene.memory.put(header, header - maze.page(0));
    maze.scene.memory.put(header + 8, (kPage + 16) | kMapped);
  }
  Found found = walk(maze.scene);
  CHECK(found.verdict.fine());
  CHECK_EQ(found.mapped_found, 1u);
}

CASE(mapped_blocks_in_many_mappings) {
  Maze maze(1);
  uint64_t start = kBlocks + (1 << 20);
  for (uint64_t n = 0; n < 1 << 16; ++n)
    maze.scene.memory.map(start + n * kPage, kPage,
                          n % 2 == 0 ? kReadWrite : kReadWrite | wire::kExecute);
  CHECK(walk(maze.scene).verdict.fine());
}

// From each page, chunks line up until shortly before the end.
CASE(regions_of_the_main_heap_that_end_badly) {
  Maze maze(1 << 13);
  maze.scene.memory.store(kMainArena + heaps::glibc::kFlagsOffset, kNonContiguous);
  uint64_t end = maze.page(maze.pages) - 64;
  for (uint64_t at = maze.page(0); at < end; at += 32) maze.scene.memory.put(at + 8, 32 | 1);
  Found found = walk(maze.scene);
  CHECK_EQ(found.verdict.status, Verdict::kInvalid);
  CHECK_EQ(std::string(found.verdict.reason),
           std::string("too much memory looks like regions of the main heap"));
}

// The end of a large block is far from its start.
CASE(many_pointers_to_a_large_block) {
  constexpr uint64_t kPages = 1 << 14;
  Sweep sweep("2.35", {});
  sweep.scene.memory.map(kBlocks, kPages * kPage);
  uint64_t large = sweep.scene.glibc.mapped(kBlocks, kPages), end = kBlocks + kPages * kPage;
  sweep.scene.blocks[large] = end - large;
  sweep.scene.set_mapped(1, kPages * kPage);
  for (uint64_t at = large; at < end; at += 8) sweep.scene.memory.put(at, end);
  sweep.run();
  CHECK(sweep.host.finished);
}

}  // namespace
}  // namespace reachscan::tests
