// The walker for Python's own allocator on images: intact, in the middle of a change, damaged.
#include <map>
#include <string>

#include "check.hpp"
#include "heaps/pymalloc/walker.hpp"
#include "on_threads.hpp"
#include "python_image.hpp"

namespace reachscan::tests {
namespace {

using namespace heaps::pymalloc;

struct Found {
  std::string reason = "fine";
  std::map<uint64_t, uint64_t> blocks;
  std::size_t regions = 0;
};

Found walk(const Python& image, std::size_t threads = 1) {
  Host host;
  abi::Thread running[4]{};
  libc::Threads all{running, threads, {sweeper::map_memory, 1}};
  heaps::BlockMap blocks(image.memory.space(), sweeper::map_memory);
  image.add_table(blocks);
  Walker walker(image.memory.space(), all, sweeper::map_memory, true);
  CHECK(walker.is_present());
  heaps::Verdict verdict = walker.enumerate(blocks, alone, 0);
  Found found;
  if (!verdict.fine()) {
    found.reason = verdict.reason;
    return found;
  }
  blocks.finish();
  blocks.each_live([&](uint64_t block) {
    if (block != Python::kTable) found.blocks[block] = blocks.end_of(block) - block;
  });
  uint64_t bytes = 0;
  for (auto [block, size] : found.blocks) bytes += size;
  CHECK_EQ(walker.totals.blocks, found.blocks.size());
  CHECK_EQ(walker.totals.bytes, bytes);
  for (const heaps::Region& region : blocks.regions) found.regions += region.kind == wire::kPools;
  return found;
}

// Two pools of three blocks each.
struct Scene {
  explicit Scene(PoolForm form = kNewPools) : image(form) {
    for (uint64_t bytes : {64, 512}) {
      pools[bytes] = image.add_pool(bytes);
      for (int i = 0; i < 3; ++i) blocks[image.take()] = bytes;
    }
  }

  Python image;
  std::map<uint64_t, uint64_t> pools, blocks;
};

CASE(all_that_was_taken_is_found) {
  for (PoolForm form : {kOldPools, kNewPools}) {
    Scene scene(form);
    Found found = walk(scene.image);
    CHECK(found.reason == "fine" && found.blocks == scene.blocks);
    CHECK(found.regions == 1);
  }
}

CASE(what_is_free_again_is_no_block) {
  Scene scene;
  uint64_t freed = scene.blocks.rbegin()->first;
  scene.image.free(freed);
  scene.blocks.erase(freed);
  CHECK(walk(scene.image).blocks == scene.blocks);
}

CASE(blocks_of_a_single_granule_end_where_the_next_begins) {
  Python image;
  image.add_pool(16);
  uint64_t first = image.take(), second = image.take();
  std::map<uint64_t, uint64_t> wanted{{first, 16}, {second, 16}};
  CHECK(walk(image).blocks == wanted);
}

CASE(a_pool_in_the_middle_of_a_change_is_left_out) {
  Scene scene;
  scene.image.memory.store(scene.pools[64], uint32_t{2});
  Found found = walk(scene.image);
  CHECK(found.reason == "fine");
  CHECK(std::erase_if(scene.blocks, [](auto block) { return block.second == 64; }) == 3);
  CHECK(found.blocks == scene.blocks);
}

CASE(more_of_them_than_threads_are_refused) {
  Scene scene;
  for (auto [size, pool] : scene.pools) scene.image.memory.store(pool, uint32_t{2});
  CHECK(walk(scene.image, 2).reason == "fine");
  CHECK(walk(scene.image, 1).reason != "fine");
}

CASE(an_arena_that_is_none_is_refused_beside_one) {
  Scene scene;
  uint64_t second = Python::kTable + kEntryBytes;
  scene.image.memory.put(second, Python::kArena);
  CHECK(walk(scene.image, 1).reason == "fine");
  scene.image.memory.store(second + kPoolCount, uint32_t{9});
  CHECK(walk(scene.image, 0).reason != "fine");
}

CASE(a_process_without_arenas_is_refused) {
  Python image;
  CHECK(walk(image).reason.find("no arena") != std::string::npos);
}

CASE(memory_of_another_allocator_is_refused) {
  Scene scene;
  Host host;
  libc::Threads none;
  heaps::BlockMap blocks(scene.image.memory.space(), sweeper::map_memory);
  scene.image.add_table(blocks);
  blocks.add_region({scene.pools[512], scene.pools[512] + 4096, wire::kMapped, 0, 0, 0});
  Walker walker(scene.image.memory.space(), none, sweeper::map_memory, true);
  CHECK(!walker.enumerate(blocks, alone, 0).fine());
}

}  // namespace
}  // namespace reachscan::tests
