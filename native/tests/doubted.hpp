// Puts in doubt what only stale words of a graph lead to.
#pragma once

#include <memory>

#include "check.hpp"
#include "graph.hpp"
#include "sweeper/stale/lookalikes.hpp"

namespace reachscan::tests {

// Unmarks what is in doubt in a marked graph.
inline std::unique_ptr<sweeper::Lookalikes> doubt(Graph& graph) {
  libc::Threads none;
  sweeper::Roots roots(graph.memory.space(), graph.blocks, none);
  auto lookalikes = std::make_unique<sweeper::Lookalikes>(graph.memory.space(), graph.blocks);
  lookalikes->doubt(roots);
  return lookalikes;
}

// Marks a graph, in which this block must be lost, and unmarks what is in doubt.
inline void mark_and_doubt(Graph& graph, std::size_t lost) {
  graph.mark();
  CHECK(!graph.blocks.is_marked(graph.start(lost)));
  doubt(graph);
}

}  // namespace reachscan::tests
