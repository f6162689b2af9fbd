// Which leaked blocks may be alternate signal stacks.
#include "sweeper/roots/signal_stacks.hpp"

#include <set>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

using Visited = std::set<std::size_t>;

// Three of one size, one marked, one that another points to, one alone, one too small, and one that
// exceeds 8 KiB by what glibc adds.
enum { kFirst, kSecond, kThird, kMarked, kOwned, kAlone, kOwner, kSmall, kWholeKib };

struct Heap {
  Heap() : graph({300, 300, 300, 400, 500, 600, 3, 254, 1025}) {
    graph.root(kMarked);
    graph.mark();
    graph.point(kOwner, 1, kOwned, 40);
    graph.point(kAlone, 7, kAlone);
  }

  Visited visited(std::size_t threads) {
    Visited found;
    sweeper::SignalStacks stacks(graph.memory.space(), graph.blocks, graph.size());
    stacks.each(threads, [&](uint64_t block) {
      for (std::size_t i = 0; i < graph.size(); ++i)
        if (graph.start(i) == block) CHECK(found.insert(i).second);
    });
    return found;
  }

  Host host;
  Graph graph;
};

CASE(no_more_than_threads) {
  Heap heap;
  CHECK(heap.visited(0) == Visited{});
  CHECK(heap.visited(1) == Visited{kWholeKib});
  CHECK(heap.visited(2) == (Visited{kWholeKib, kAlone}));
  CHECK(heap.visited(3) == (Visited{kWholeKib, kAlone}));
  CHECK(heap.visited(4) == (Visited{kWholeKib, kFirst, kSecond, kThird}));
  CHECK(heap.visited(5) == (Visited{kWholeKib, kFirst, kSecond, kThird, kAlone}));
}

}  // namespace
}  // namespace reachscan::tests
