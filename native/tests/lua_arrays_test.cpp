// Which arrays of Lua's tables are in use although what leads to them looks like a link of a free
// list.
#include <utility>

#include "check.hpp"
#include "graph.hpp"
#include "sweeper/leaks/doubt.hpp"

namespace reachscan::tests {
namespace {

constexpr uint64_t kTypes = 0x45'03ull << 32;  // an integer and a table, behind the hint
constexpr std::size_t kOuter = 0, kPair = 1, kInner = 2, kFour = 3, kLost = 4;

// A table with two values, one of them a table with four; and a block that is lost.
struct Tables {
  Tables() : graph({7, 3, 7, 5, 3}) {
    put(kOuter, kPair, 2);
    put(kInner, kFour, 4);
    graph.point(kPair, 1, kInner);
    graph.root(kOuter);
  }

  void put(std::size_t table, std::size_t array, uint64_t values) {
    uint64_t start = graph.start(table);
    graph.point(table, 0, kLost);
    graph.memory.put(start + 8, 5 | values << 32);
    graph.point(table, 2, array, 8 * values);
    graph.memory.put(graph.start(array) + 8 * values, kTypes);
  }

  // Returns the blocks that marking leaves out, and that are in use for certain.
  std::vector<uint64_t> in_use() {
    graph.mark();
    CHECK(!graph.blocks.is_marked(graph.start(kPair)));
    graph.blocks.mark(graph.start(kLost));
    libc::Threads none;
    sweeper::Roots roots(graph.memory.space(), graph.blocks, none);
    sweeper::DoubtPass look(graph.memory.space(), graph.blocks,
                            sweeper::count_unmarked(graph.blocks));
    const auto found = look.mark_blocks_in_use(roots);
    return {found.begin(), found.end()};
  }

  Host host;
  Graph graph;
};

CASE(arrays_of_two_and_four_values) {
  Tables tables;
  const Graph& graph = tables.graph;
  CHECK((tables.in_use() ==
         std::vector{graph.start(kPair), graph.start(kInner), graph.start(kFour)}));
}

CASE(a_link_in_what_is_no_table) {
  for (auto [at, word] : {std::pair{8, 5ull | 1ull << 32}, {8, 4ull | 2ull << 32}, {0, 99ull}}) {
    Tables tables;
    tables.graph.memory.put(tables.graph.start(kOuter) + at, word);
    CHECK(tables.in_use().empty());
  }
}

}  // namespace
}  // namespace reachscan::tests
