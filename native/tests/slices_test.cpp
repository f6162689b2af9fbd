// Which blocks are pages of GLib's slices, and that words in them are not compared with each other.
#include "sweeper/stale/slices.hpp"

#include "check.hpp"
#include "doubted.hpp"

namespace reachscan::tests {
namespace {

// Three pages in a ring, and the block before them, which aligns them. Then four blocks that are
// alike.
struct Pages {
  static constexpr std::size_t kCount = 3, kWords = 63, kInfo = kWords + 1 - 6;
  static constexpr std::size_t kTarget = kCount + 1, kPlace = 7;
  static constexpr std::size_t kAligning = 60;

  explicit Pages(std::size_t words_before = kAligning)
      : graph({words_before, kWords, kWords, kWords, 11, 11, 11, 11}) {
    for (std::size_t i = 0; i < kCount; ++i) {
      graph.root(1 + i);
      link(i, 2, (i + 1) % kCount);
      link(i, 3, (i + kCount - 1) % kCount);
    }
  }
  void link(std::size_t page, std::size_t word, std::size_t other) {
    graph.point(1 + page, kInfo + word, 1 + other, 8 * kInfo);
  }
  bool is_page(std::size_t page) const {
    return sweeper::Slices(graph.blocks).is_page(graph.start(1 + page));
  }

  Host host;
  Graph graph;
};

CASE(pages_form_a_ring) {
  Pages pages;
  CHECK_EQ(pages.graph.start(1) % 512, 0u);
  for (std::size_t i = 0; i < Pages::kCount; ++i) CHECK(pages.is_page(i));
}

CASE(a_page_without_a_neighbour_is_none) {
  for (std::size_t word : {2, 3}) {
    Pages pages;
    pages.link(0, word, 0);
    CHECK(!pages.is_page(0));
  }
}

CASE(pages_are_aligned) {
  Pages pages(Pages::kAligning - 1);
  CHECK(!pages.is_page(0));
}

CASE(a_free_object_is_in_its_page) {
  Pages pages;
  pages.graph.point(1, Pages::kInfo, 1, 128);
  CHECK(pages.is_page(0));
  pages.graph.point(1, Pages::kInfo, 2);
  CHECK(!pages.is_page(0));
}

// A page holds one of the blocks in a place that points to free memory in another page.
CASE(what_an_object_in_a_page_leads_to_is_not_in_doubt) {
  for (std::size_t words_before : {Pages::kAligning, Pages::kAligning - 1}) {
    Pages pages(words_before);
    Graph& graph = pages.graph;
    graph.point(1, Pages::kPlace, Pages::kTarget);
    graph.memory.put(graph.start(2) + 8 * Pages::kPlace, graph.memory.mappings().front().end - 8);
    graph.mark();
    doubt(graph);
    CHECK_EQ(graph.blocks.is_marked(graph.start(Pages::kTarget)), words_before == Pages::kAligning);
  }
}

// Two pages lead to the middle of blocks, at different places.
CASE(what_slices_do_alike_is_intentional) {
  for (std::size_t words_before : {Pages::kAligning, Pages::kAligning - 1}) {
    Pages pages(words_before);
    Graph& graph = pages.graph;
    for (std::size_t i = 0; i < 2; ++i) graph.point(1 + i, 5 + 8 * i, Pages::kTarget + i, 16);
    graph.mark();
    doubt(graph);
    for (std::size_t i = 0; i < 2; ++i)
      CHECK_EQ(graph.blocks.is_marked(graph.start(Pages::kTarget + i)),
               words_before == Pages::kAligning);
  }
}

}  // namespace
}  // namespace reachscan::tests
