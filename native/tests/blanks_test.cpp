// Marking skips the granules that are known to be blank, and no others.
#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

std::vector<std::size_t> many_and_one_large(std::size_t words) {
  std::vector<std::size_t> sizes(2 * kMany, words);
  sizes[0] = kMany;
  return sizes;
}

// Makes the large one lead to half of the others.
void lead_to_many(Graph& graph) {
  for (std::size_t block = 1; block < kMany; ++block) graph.point(0, block, block);
  graph.root(0);
}

// Each word of blocks of each size, at each place in a span, and nothing else in these blocks.
CASE(a_pointer_in_any_word_of_a_small_block_counts_where_the_rest_is_blank) {
  constexpr std::size_t kMostWords = 18;
  for (std::size_t size = 1; size <= kMostWords; ++size) {
    Host host;
    Graph graph(many_and_one_large(size));
    lead_to_many(graph);
    for (std::size_t block = 1; block < kMany; ++block)
      graph.point(block, block % graph.words(block), kMany + block * 7 % (kMany - 1));
    graph.note_blanks();
    graph.mark(1);
    graph.check_marks();
    CHECK(!graph.blocks.is_marked(graph.start(2 * kMany - 1)));
  }
}

CASE(blank_granules_are_not_read) {
  if (!arch::has_lanes()) return;
  Host host;
  Graph graph(many_and_one_large(5));
  lead_to_many(graph);
  for (std::size_t block = 1; block < kMany; ++block) graph.point(block, block % 5, kMany + block);
  graph.note_blanks();
  for (std::size_t block = 1; block < kMany; ++block) {
    graph.memory.put(graph.start(block) + 8 * (block % 5), 0);
    graph.point(block, (block + 2) % 5, kMany + block);
  }
  graph.mark(1);
  std::size_t found = 0;
  for (std::size_t block = kMany; block < 2 * kMany; ++block)
    found += graph.blocks.is_marked(graph.start(block));
  CHECK(found < kMany / 32);  // by blocks that are noted as grey in the next span
}

}  // namespace
}  // namespace reachscan::tests
