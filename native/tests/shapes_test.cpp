// The shape of a block is reported only if it and its neighbours agree.
#include "sweeper/blocks/shapes.hpp"

#include <cstring>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

uint32_t shape(const Graph& graph, std::size_t block, uint64_t slot = 0) {
  return sweeper::shape_of(graph.memory.space(), graph.blocks, graph.start(block),
                           graph.bytes(block), slot);
}

// Writes colour, parent, left and right of three nodes. Block 0 is the header.
void make_tree(Graph& graph) {
  graph.point(0, 1, 2), graph.point(2, 1, 0);
  graph.point(2, 2, 1), graph.point(2, 3, 3);
  graph.point(1, 1, 2), graph.point(3, 1, 2);
  graph.memory.put(graph.start(1), 0xabcd00000001);  // the colour has only 32 bits
}

CASE(tree_nodes) {
  Host host;
  Graph graph(4, 6);
  make_tree(graph);
  for (std::size_t node : {1, 2, 3}) CHECK_EQ(shape(graph, node), uint32_t{wire::kTreeNode});
}

CASE(a_child_that_does_not_know_its_parent_spoils_a_tree_node) {
  Host host;
  Graph graph(4, 6);
  make_tree(graph);
  graph.point(3, 1, 1);
  CHECK_EQ(shape(graph, 2), uint32_t{wire::kPointerArray});
  CHECK(shape(graph, 3) != wire::kTreeNode);
  CHECK_EQ(shape(graph, 1), uint32_t{wire::kTreeNode});
}

CASE(list_nodes) {
  Host host;
  Graph graph(3, 4);
  for (std::size_t node = 0; node < 3; ++node)
    graph.point(node, 0, (node + 1) % 3), graph.point((node + 1) % 3, 1, node);
  for (std::size_t node = 0; node < 3; ++node)
    CHECK_EQ(shape(graph, node), uint32_t{wire::kListNode});
  graph.point(1, 1, 1);
  CHECK_EQ(shape(graph, 0),
           uint32_t{wire::kPointerArray});  // still two pointers, with zeros behind
  CHECK_EQ(shape(graph, 2), uint32_t{wire::kListNode});
}

CASE(an_empty_list_is_no_node) {
  Host host;
  Graph graph(1, 5);
  graph.point(0, 0, 0), graph.point(0, 1, 0), graph.memory.put(graph.start(0) + 16, 3);
  CHECK_EQ(shape(graph, 0), uint32_t{wire::kUnknownShape});
}

CASE(chain_nodes) {
  Host host;
  Graph graph(std::vector<std::size_t>{3, 3, 9});
  graph.memory.put(graph.start(0) + 8, 77), graph.memory.put(graph.start(1) + 8, 78);
  graph.point(0, 0, 1);
  CHECK_EQ(shape(graph, 0), uint32_t{wire::kChainNode});
  CHECK_EQ(shape(graph, 1), uint32_t{wire::kUnknownShape});
  CHECK_EQ(shape(graph, 1, graph.start(0)), uint32_t{wire::kChainNode});
  graph.point(0, 0, 2);
  CHECK_EQ(shape(graph, 0), uint32_t{wire::kUnknownShape});
}

CASE(vector_bodies) {
  Host host;
  Graph graph(std::vector<std::size_t>{4, 7});
  uint64_t slot = graph.start(0) + 8;
  graph.memory.put(graph.start(1), 5);
  graph.point(0, 1, 1, 0), graph.point(0, 2, 1, 16), graph.point(0, 3, 1, 48);
  CHECK_EQ(shape(graph, 1, slot), uint32_t{wire::kVectorBody});
  CHECK_EQ(shape(graph, 1), uint32_t{wire::kUnknownShape});
  graph.point(0, 3, 1, 24);  // the capacity is far from the end
  CHECK_EQ(shape(graph, 1, slot), uint32_t{wire::kUnknownShape});
  graph.point(0, 2, 1, 56), graph.point(0, 3, 1, 48);  // the end is after the capacity
  CHECK_EQ(shape(graph, 1, slot), uint32_t{wire::kUnknownShape});
}

CASE(a_vector_needs_its_three_words_in_its_owner) {
  Host host;
  Graph graph(std::vector<std::size_t>{3, 3});
  graph.point(0, 1, 1), graph.point(0, 2, 1, 24);
  graph.memory.put(graph.start(1), 5);
  CHECK_EQ(shape(graph, 1, graph.start(0) + 8), uint32_t{wire::kUnknownShape});
}

void write_text(Graph& graph, const char* text) {
  std::memcpy(reinterpret_cast<void*>(graph.start(0)), text, std::strlen(text) + 1);
}

CASE(text) {
  for (const char* text : {"a line of text that fills", "caf\xc3\xa9 au lait, s'il vous", "four"}) {
    Host host;
    Graph graph(1, std::strlen(text) < 8 ? 3u : 5u);
    write_text(graph, text);
    context = text;
    CHECK_EQ(shape(graph, 0), uint32_t{wire::kString});
  }
}

// 129 is not rounded up to 200. The middle of a long text is not examined.
CASE(a_text_in_a_block_that_is_longer_is_no_string) {
  for (std::size_t words : {25, 1000}) {
    for (std::size_t unused : {1, 31, 32, 33, 72}) {
      Host host;
      Graph graph(1, words);
      std::memset(reinterpret_cast<void*>(graph.start(0)), 'x', graph.bytes(0) - unused);
      CHECK_EQ(shape(graph, 0), uint32_t{unused <= 32 ? wire::kString : wire::kText});
    }
  }
}

CASE(letters_that_are_an_address_are_no_text) {
  Host host;
  Graph graph(1, 3);
  write_text(graph, "------");
  CHECK_EQ(shape(graph, 0), uint32_t{wire::kString});
  graph.memory.map(0x2d2d2d2d2000, heaps::kPage, wire::kRead, 0, 1);
  CHECK(shape(graph, 0) != uint32_t{wire::kText});
}

// A free list leaves in a block the address of its link mixed with the link's target. The address
// sanitizer allocates at 0x602000000000, so these are six letters.
CASE(letters_that_are_a_disguised_link_are_no_text) {
  Host host;
  Graph graph(1, 3);
  uint64_t start = graph.start(0);
  graph.memory.put(start, (start >> 36 << 36) | 0x1'2121'2121);
  CHECK_EQ(shape(graph, 0), uint32_t{wire::kUnknownShape});
}

// Low bytes of an address in their order: none starts a character, one sequence is too short, one
// is longer than necessary.
CASE(bytes_that_are_no_utf8_are_no_text) {
  for (const char* bytes : {"a\x80tail of text", "a\xe9 tail of text", "a\xc0\xaf tail of text"}) {
    Host host;
    Graph graph(1, 3);
    write_text(graph, bytes);
    context = bytes;
    CHECK_EQ(shape(graph, 0), uint32_t{wire::kUnknownShape});
  }
}

CASE(no_text) {
  for (const char* text : {"abc", "binary\x01 things in it, much", "ten bytes!"}) {
    Host host;
    Graph graph(1, std::strlen(text) < 8 ? 3u : 9u);
    write_text(graph, text);
    context = text;
    CHECK_EQ(shape(graph, 0), uint32_t{wire::kUnknownShape});
  }
}

CASE(zeros_and_arrays_of_pointers) {
  Host host;
  Graph graph(std::vector<std::size_t>{8, 3, 3, 9000});
  CHECK_EQ(shape(graph, 0), uint32_t{wire::kZeros});
  graph.point(0, 1, 1);
  CHECK_EQ(shape(graph, 0), uint32_t{wire::kUnknownShape});
  graph.point(0, 5, 2);
  CHECK_EQ(shape(graph, 0), uint32_t{wire::kPointerArray});
  graph.point(0, 6, 2, 8);  // into the middle
  CHECK_EQ(shape(graph, 0), uint32_t{wire::kUnknownShape});
  CHECK_EQ(shape(graph, 3), uint32_t{wire::kZeros});
}

}  // namespace
}  // namespace reachscan::tests
