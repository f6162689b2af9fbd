// Free memory in the arenas of CPython's allocator is not a root, but counts as free only if the
// bookkeeping is consistent.
#include "sweeper/roots/python_arenas.hpp"

#include "check.hpp"
#include "graph.hpp"
#include "sweeper/roots/roots.hpp"

namespace reachscan::tests {
namespace {

constexpr uint64_t kVariables = kWorld + (1ull << 32);
constexpr uint64_t kArena = kVariables + (1ull << 30) + heaps::kPage;
constexpr std::size_t kTableWords = 16 * 6;

// Differences between the two generations of the allocator.
struct Generation {
  uint64_t pool_bytes, alignment;
};
constexpr Generation kOld{4096, 8}, kNew{16384, 16};

// An arena with two pools taken. The first has blocks of 64 bytes, the first four of them taken;
// the second is free. Block 0 of the graph is the table.
struct Scene {
  explicit Scene(Generation what) : generation(what) {
    graph.memory.map(kVariables, heaps::kPage, kReadWrite, abi::kFileBacked, 1);
    graph.memory.put(kVariables + 8, graph.start(0));
    graph.memory.map(kArena, 64 * what.pool_bytes);
    first = heaps::align_up(kArena, what.pool_bytes);
    second = first + what.pool_bytes;
    untaken = second + what.pool_bytes;
    uint64_t pools = first == kArena ? 64 : 63;
    describe_arena(pools);
    describe_pool(first, 2, first + kHeader + kBlock);
    graph.memory.put(first + kHeader + kBlock, first + kHeader + 3 * kBlock);
    graph.memory.put(first + kHeader + 3 * kBlock, 0);
    describe_pool(second, 0, second + kHeader);
  }

  void describe_arena(uint64_t pools) {
    uint64_t entry = graph.start(0);
    graph.memory.put(entry, kArena);
    graph.memory.put(entry + 8, untaken);
    graph.memory.store(entry + 16, static_cast<uint32_t>(pools - 1));
    graph.memory.store(entry + 20, static_cast<uint32_t>(pools));
    graph.memory.put(entry + 24, second);
  }

  void describe_pool(uint64_t pool, uint32_t used, uint64_t free_block) {
    Memory& memory = graph.memory;
    memory.store(pool, used);
    memory.put(pool + 8, free_block);
    memory.put(pool + 16, 0);
    memory.store(pool + 32, uint32_t{0});
    memory.store(pool + 36, static_cast<uint32_t>(kBlock / generation.alignment - 1));
    memory.store(pool + 40, static_cast<uint32_t>(kHeader + 4 * kBlock));
    memory.store(pool + 44, static_cast<uint32_t>(generation.pool_bytes - kBlock));
  }

  // Returns whether a word at `at` is a root.
  bool is_root(uint64_t at) {
    graph.memory.put(at, graph.start(1));
    libc::Threads none{nullptr, 0, {sweeper::map_memory, 1}};
    sweeper::Roots roots(graph.memory.space(), graph.blocks, none);
    sweeper::Marker marker = graph.marker();
    roots.mark(marker);
    graph.memory.put(at, 0);
    bool marked = graph.blocks.is_marked(graph.start(1));
    for (std::size_t block : {0, 1}) graph.blocks.clear_mark(graph.start(block));
    return marked;
  }
  bool is_root_in_block(uint64_t number) { return is_root(first + kHeader + number * kBlock + 8); }
  // Returns whether any free memory was recognised as free, which needs consistent structures.
  bool is_any_free() { return !is_root_in_block(1) || !is_root_in_block(3); }

  static constexpr uint64_t kHeader = 48, kBlock = 64;
  Host host;
  Graph graph{std::vector<std::size_t>{kTableWords, 4}};
  Generation generation;
  uint64_t first, second, untaken;
};

CASE(what_is_free_is_no_root) {
  for (Generation generation : {kOld, kNew}) {
    Scene scene(generation);
    CHECK(scene.is_root_in_block(0) && scene.is_root_in_block(2));
    CHECK(!scene.is_root_in_block(1) && !scene.is_root_in_block(3));
    CHECK(!scene.is_root_in_block(4));  // not taken yet
    CHECK(!scene.is_root(scene.second - 8) && !scene.is_root(scene.second + 64));
    CHECK(!scene.is_root(scene.untaken) && !scene.is_root(scene.untaken + 8192));
  }
}

CASE(an_arena_without_a_table_is_a_root) {
  Scene scene(kNew);
  scene.graph.memory.put(kVariables + 8, scene.graph.start(0) + 48);
  CHECK(!scene.is_any_free() && scene.is_root(scene.second + 64) && scene.is_root(scene.untaken));
}

CASE(a_pool_that_does_not_add_up_is_a_root) {
  for (uint32_t used : {0, 1, 3}) {
    Scene scene(kNew);
    scene.graph.memory.store(scene.first, used);
    CHECK(!scene.is_any_free() && scene.is_root_in_block(4));
    CHECK(!scene.is_root(scene.second + 64));
  }
}

CASE(a_free_list_that_is_none_proves_nothing) {
  for (uint64_t next : {uint64_t{1}, uint64_t{2 * 64 + 8}, uint64_t{4 * 64}, ~uint64_t{127}}) {
    Scene scene(kNew);
    scene.graph.memory.put(scene.first + 48 + 64, scene.first + 48 + next);
    CHECK(!scene.is_any_free());
  }
}

CASE(a_header_that_is_none_proves_nothing) {
  struct Damage {
    uint64_t field;
    uint32_t value;
  };
  for (Damage damage : {Damage{32, 1}, {36, 9}, {40, 48 + 4 * 64 + 8}, {40, 1u << 20}, {44, 64}}) {
    Scene scene(kNew);
    scene.graph.memory.store(scene.first + damage.field, damage.value);
    CHECK(!scene.is_any_free());
  }
}

CASE(free_pools_must_add_up) {
  Scene scene(kNew);
  scene.graph.memory.store(scene.graph.start(0) + 16, uint32_t{61});
  CHECK(scene.is_root(scene.second + 64) && scene.is_root(scene.untaken));
  CHECK(scene.is_any_free());  // each pool is checked by itself
}

CASE(lists_of_free_pools_end) {
  for (bool again : {false, true}) {
    Scene scene(kNew);
    scene.graph.memory.put(scene.second + 16, again ? scene.second : scene.untaken);
    CHECK(scene.is_root(scene.second + 64) && scene.is_root(scene.untaken));
  }
}

}  // namespace
}  // namespace reachscan::tests
