// Which words are in free slices of GLib, and hold nothing.
#include "sweeper/stale/free_slices.hpp"

#include <memory>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

// Two pages with 9 slices of 6 words each, a thread's magazines for slices of 2, 4 and 6 words, and
// what all slices lead to. Before them, a block that aligns them.
struct Pages {
  static constexpr std::size_t kFirst = 1, kSecond = 2, kMagazines = 3, kTarget = 4;
  static constexpr std::size_t kPageWords = 63, kInfo = kPageWords + 1 - 6, kSlices = 9, kWords = 6;
  static constexpr std::size_t kPlace = 4;  // the word of a slice that leads somewhere

  Pages() : graph({60, kPageWords, kPageWords, 15, 21}) {
    for (std::size_t page : {kFirst, kSecond}) {
      graph.point(page, kInfo + 2, kFirst + kSecond - page, 8 * kInfo);
      graph.point(page, kInfo + 3, kFirst + kSecond - page, 8 * kInfo);
      put(page, kInfo + 1, kSlices);
      for (std::size_t i = 0; i < kSlices; ++i) graph.point(page, kWords * i + kPlace, kTarget);
    }
    graph.point(kMagazines, 0, kMagazines, 16);
    graph.point(kMagazines, 1, kMagazines, 64);
    for (std::size_t block : {kFirst, kSecond, kMagazines, kTarget})
      graph.blocks.mark(graph.start(block));
  }

  void put(std::size_t block, std::size_t word, uint64_t value) {
    graph.memory.put(graph.start(block) + 8 * word, value);
  }
  // Makes a word lead to a slice.
  void lead(std::size_t block, std::size_t word, std::size_t page, std::size_t slice) {
    graph.point(block, word, page, 8 * kWords * slice);
  }
  void link(std::size_t page, std::size_t slice, std::size_t next) {
    lead(page, kWords * slice, page, next);
  }
  // Puts slices 0 and 5 of the first page into its own list.
  void list() {
    lead(kFirst, kInfo, kFirst, 5);
    link(kFirst, 5, 0);
    put(kFirst, kInfo + 1, kSlices - 2);
  }
  // Puts the first four slices of a page into a magazine of the depot, between two others.
  void put_into_depot(std::size_t page, std::size_t previous, std::size_t next) {
    for (std::size_t i = 0; i < 3; ++i) link(page, i, i + 1);
    lead(page, 1, previous, 0);
    put(page, kWords + 1, 1000);  // a time
    lead(page, 2 * kWords + 1, next, 0);
    put(page, 3 * kWords + 1, 4);
  }

  void find() {
    targets = std::make_unique<sweeper::Targets>(graph.memory.space(), graph.blocks);
    slices = std::make_unique<sweeper::FreeSlices>(graph.blocks, *targets);
    for (std::size_t block : {kFirst, kSecond, kMagazines})
      slices->look_at(graph.blocks.range_of(graph.start(block)));
    slices->sort();
  }
  // Returns how many slices of a page are free, of the first ones.
  std::vector<std::size_t> free(std::size_t page) {
    find();
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < kSlices; ++i)
      if (slices->contain(graph.start(page) + 8 * (kWords * i + kPlace))) found.push_back(i);
    CHECK_EQ(targets->has_owners(), !targets->empty());
    return found;
  }

  Host host;
  Graph graph;
  std::unique_ptr<sweeper::Targets> targets;
  std::unique_ptr<sweeper::FreeSlices> slices;
};

using Found = std::vector<std::size_t>;

CASE(slices_in_use_may_hold_something) {
  Pages pages;
  CHECK(pages.free(Pages::kFirst).empty());
  CHECK(pages.targets->empty());
}

CASE(a_page_lists_free_slices) {
  Pages pages;
  pages.list();
  CHECK(pages.free(Pages::kFirst) == (Found{0, 5}));
  CHECK(pages.free(Pages::kSecond).empty());
  CHECK_EQ(pages.targets->blocks()[0], pages.graph.start(Pages::kTarget));
  CHECK(pages.targets->may_be_owner(pages.graph.start(Pages::kFirst)));
}

CASE(the_end_of_a_page_is_not_in_use) {
  Pages pages;
  pages.graph.point(Pages::kFirst, Pages::kPageWords - 1, Pages::kTarget);
  pages.find();
  uint64_t info = pages.graph.start(Pages::kFirst) + 8 * Pages::kInfo;
  for (std::size_t word = 0; word < 5; ++word)
    CHECK_EQ(pages.slices->contain(info + 8 * word), word == 4);
  CHECK_EQ(pages.targets->blocks()[0], pages.graph.start(Pages::kTarget));
}

CASE(links_are_not_among_the_words) {
  Pages pages;
  pages.list();
  pages.find();
  uint64_t slice = pages.graph.start(Pages::kFirst);
  for (std::size_t word = 0; word <= Pages::kWords; ++word)
    CHECK_EQ(pages.slices->contain(slice + 8 * word), word >= 2 && word < Pages::kWords);
}

CASE(a_list_that_is_being_changed_says_nothing) {
  Pages pages;
  pages.list();
  pages.link(Pages::kFirst, 0, 5);  // it never ends
  CHECK(pages.free(Pages::kFirst).empty());
  pages.list();
  pages.put(Pages::kFirst, 0, 8);  // leads to none
  CHECK(pages.free(Pages::kFirst).empty());
  pages.put(Pages::kFirst, 0, 0);
  CHECK(pages.free(Pages::kFirst) == (Found{0, 5}));
  pages.put(Pages::kFirst, Pages::kInfo + 1, 14);  // so many do not fit
  CHECK(pages.free(Pages::kFirst).empty());
}

CASE(threads_have_magazines) {
  Pages pages;
  pages.lead(Pages::kMagazines, 2 + 4, Pages::kFirst, 2);
  pages.link(Pages::kFirst, 2, 7);
  pages.lead(Pages::kMagazines, 8 + 4, Pages::kSecond, 1);
  CHECK(pages.free(Pages::kFirst) == (Found{2, 7}));
  CHECK(pages.free(Pages::kSecond) == Found{1});
}

CASE(magazines_have_slices_of_one_size) {
  Pages pages;
  pages.lead(Pages::kMagazines, 2 + 2, Pages::kFirst, 2);
  CHECK(pages.free(Pages::kFirst).empty());
}

CASE(a_block_that_begins_otherwise_has_no_magazines) {
  for (std::size_t word : {0, 1}) {
    Pages pages;
    pages.lead(Pages::kMagazines, 2 + 4, Pages::kFirst, 2);
    pages.put(Pages::kMagazines, word, 0);
    CHECK(pages.free(Pages::kFirst).empty());
  }
}

CASE(magazines_in_the_depot_form_a_ring) {
  Pages pages;
  pages.put_into_depot(Pages::kFirst, Pages::kSecond, Pages::kSecond);
  CHECK(pages.free(Pages::kFirst).empty());
  pages.put_into_depot(Pages::kSecond, Pages::kFirst, Pages::kFirst);
  for (std::size_t page : {Pages::kFirst, Pages::kSecond})
    CHECK(pages.free(page) == (Found{0, 1, 2, 3}));
  pages.put(Pages::kSecond, 3 * Pages::kWords + 1, 3);  // too few slices
  CHECK(pages.free(Pages::kSecond).empty());
}

CASE(a_magazine_may_be_alone_in_the_depot) {
  Pages pages;
  pages.put_into_depot(Pages::kFirst, Pages::kFirst, Pages::kFirst);
  CHECK(pages.free(Pages::kFirst) == (Found{0, 1, 2, 3}));
}

}  // namespace
}  // namespace reachscan::tests
