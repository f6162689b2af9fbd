// What an allocator says about its blocks, believable or not.
#include <string>

#include "check.hpp"
#include "heaps/iterated/walker.hpp"
#include "hosted.hpp"
#include "memory.hpp"
#include "on_threads.hpp"

namespace reachscan::tests {
namespace {

using heaps::kPage;
using heaps::List;
using heaps::Range;
using heaps::iterated::Block;
using heaps::iterated::Blocks;

constexpr uint64_t kHeap = kWorld + (1 << 20), kModule = kWorld + (64 << 20);

struct Scene {
  Scene() {
    memory.map(kHeap, 64 * kPage);
    memory.map(kModule, kPage, kReadWrite, abi::kFileBacked, 1);
    memory.map(kModule + 2 * kPage, kPage, kReadWrite | wire::kShared);
  }

  // Lists the blocks and returns what is wrong with them.
  std::string claim(std::initializer_list<Block> blocks) {
    for (const Block& block : blocks) listed.push(block);
    heaps::Totals totals;
    heaps::Verdict verdict =
        Blocks(memory.space(), sweeper::map_memory, listed, gaps, 0, {map, totals, alone})
            .claim_all();
    if (!verdict.fine()) return verdict.reason;
    map.finish();
    map.each_live([&](uint64_t block) { found.push_back({block, map.end_of(block) - block}); });
    CHECK_EQ(totals.blocks, found.size());
    return "fine";
  }

  Host host;
  Memory memory;
  List<Block> listed{sweeper::map_memory, 16};
  List<Range> gaps{sweeper::map_memory, heaps::iterated::kMaxRuns};
  heaps::BlockMap& map = *new heaps::BlockMap(described(), sweeper::map_memory);
  std::vector<std::pair<uint64_t, uint64_t>> found;

 private:
  const heaps::Space& described() {
    static const abi::Mapping whole{kHeap, kHeap + 64 * kPage, kReadWrite, 0, 0, 0};
    static const heaps::Space space(&whole, 1);
    return space;
  }
};

CASE(blocks_have_their_exact_sizes_in_any_order) {
  Scene scene;
  CHECK_EQ(scene.claim({{kHeap + 64, 13}, {kHeap + 16, 0}, {kHeap + 24, 40}, {kHeap + 80, 8}}),
           std::string("fine"));
  std::vector<std::pair<uint64_t, uint64_t>> expected{
      {kHeap + 16, 0}, {kHeap + 24, 40}, {kHeap + 64, 13}, {kHeap + 80, 8}};
  CHECK(scene.found == expected);
}

CASE(pages_with_blocks_are_regions_and_those_between_are_unclear) {
  Scene scene;
  CHECK_EQ(scene.claim({{kHeap + kPage - 8, 16}, {kHeap + 5 * kPage, 8}}), std::string("fine"));
  CHECK_EQ(scene.map.regions.size(), 2u);
  CHECK_EQ(scene.map.regions[0].start, kHeap);
  CHECK_EQ(scene.map.regions[0].end, kHeap + 2 * kPage);
  CHECK_EQ(scene.gaps.size(), 1u);
  CHECK_EQ(scene.gaps[0].start, kHeap + 2 * kPage);
  CHECK_EQ(scene.gaps[0].end, kHeap + 5 * kPage);
}

CASE(what_follows_a_block_is_not_part_of_it) {
  Scene scene;
  CHECK_EQ(scene.claim({{kHeap + kPage - 16, 16}, {kHeap + kPage + 64, 8}}), std::string("fine"));
  CHECK_EQ(scene.map.block_of(kHeap + kPage - 1), kHeap + kPage - 16);
  CHECK_EQ(scene.map.block_of(kHeap + kPage), 0u);
  CHECK_EQ(scene.map.block_of(kHeap + kPage + 72), 0u);
}

CASE(impossible_blocks_are_refused) {
  const std::string kIterate = "malloc_iterate() has listed ";
  CHECK_EQ(Scene().claim({{kHeap, 32}, {kHeap + 24, 8}}), kIterate + "blocks that overlap");
  CHECK_EQ(Scene().claim({{kHeap, 0}, {kHeap, 0}}), kIterate + "blocks that overlap");
  CHECK_EQ(Scene().claim({{kHeap + 4, 8}}), kIterate + "a block at an odd address");
  for (Block outside : {Block{kModule, 8}, Block{kModule + 2 * kPage, 8}, Block{kHeap - 8, 8},
                        Block{kHeap + 64 * kPage - 8, 16}, Block{kHeap + 8, ~uint64_t{0}}})
    CHECK_EQ(Scene().claim({outside}), kIterate + "a block outside of anonymous memory");
}

CASE(memory_of_another_allocator_is_refused) {
  Scene scene;
  CHECK(scene.map.add_region({kHeap + 128, kHeap + 256, wire::kMapped, 0, 0, 0}));
  CHECK_EQ(scene.claim({{kHeap, 8}}),
           std::string("malloc_iterate() has listed blocks in another allocator's memory"));
}

}  // namespace
}  // namespace reachscan::tests
