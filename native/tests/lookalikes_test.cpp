// Which blocks are in doubt because only stale words lead to them.
#include "sweeper/stale/lookalikes.hpp"

#include "check.hpp"
#include "graph.hpp"
#include "sweeper/leaks/doubt.hpp"

namespace reachscan::tests {
namespace {

constexpr std::size_t kRecords = 5, kHeads = 6;
constexpr std::size_t kFirstHead = kRecords, kHub = kFirstHead + kHeads, kFirstLeaf = kHub + 1;
constexpr std::size_t kPlace = 7;  // the word of a record that leads to a head

std::vector<std::size_t> sizes(std::size_t leaves, std::size_t lost_leaves) {
  std::vector<std::size_t> words(kRecords, 21);
  words.insert(words.end(), kHeads, 11);
  words.push_back(leaves);
  words.insert(words.end(), leaves + lost_leaves, 3);
  return words;
}

// Records in use, and heads, each of which leads to the hub; that leads to the leaves. Heads that
// no record leads to are lost, and so are more leaves; nothing else is.
struct Web {
  explicit Web(std::size_t leaves, std::size_t lost_leaves = 0)
      : graph(sizes(leaves, lost_leaves)) {
    for (std::size_t i = 0; i < kRecords; ++i)
      graph.memory.put(graph.nobodys(8 * i), graph.start(i));
    for (std::size_t i = 0; i < kHeads; ++i) graph.point(kFirstHead + i, 0, kHub);
    for (std::size_t i = 0; i < leaves; ++i) graph.point(kHub, i, kFirstLeaf + i);
  }

  void hold(std::size_t record, std::size_t head) {
    graph.point(record, kPlace, kFirstHead + head);
  }
  // Makes the place in a record point to free memory.
  void dangle(std::size_t record) {
    uint64_t free = graph.memory.mappings().front().end - 8;
    CHECK_EQ(graph.blocks.block_of(free), 0u);
    graph.memory.put(graph.start(record) + 8 * kPlace, free);
  }

  void doubt() {
    libc::Threads none;
    sweeper::Roots roots(graph.memory.space(), graph.blocks, none);
    sweeper::Marker marker = graph.marker();
    roots.mark(marker);
    CHECK(is_live(kHub) && !is_live(kHub - 1));
    lookalikes = &sweeper::find_lookalikes(graph.memory.space(), roots, graph.blocks).lookalikes;
  }
  // Makes unaligned bytes of a record point to a block.
  void point_unaligned(std::size_t record, std::size_t block) {
    graph.memory.put(graph.start(record) + 8 * (kPlace + 2) + 3, graph.start(block));
  }
  // Returns those of these blocks that are lost, after a second look.
  std::vector<std::size_t> lost_of(const std::vector<std::size_t>& asked) {
    libc::Threads none;
    sweeper::Roots roots(graph.memory.space(), graph.blocks, none);
    sweeper::DoubtPass second(graph.memory.space(), graph.blocks,
                              sweeper::count_unmarked(graph.blocks));
    second.look(roots, graph.put_aside, *lookalikes);
    std::vector<std::size_t> lost;
    for (std::size_t block : asked)
      if (second.is_lost(graph.start(block))) lost.push_back(block);
    return lost;
  }
  bool is_live(std::size_t block) const { return graph.blocks.is_marked(graph.start(block)); }
  bool is_live(std::size_t first, std::size_t count) const {
    std::size_t live = 0;
    for (std::size_t i = 0; i < count; ++i) live += is_live(first + i) ? 1 : 0;
    CHECK(live == 0 || live == count);
    return live != 0;
  }

  Host host;
  Graph graph;
  const sweeper::Lookalikes* lookalikes = nullptr;
};

constexpr std::size_t kFewLeaves = 40;

CASE(what_hangs_on_a_stale_word_is_in_doubt_with_it) {
  Web web(kFewLeaves);
  web.hold(0, 0);
  web.dangle(1);
  web.doubt();
  CHECK(!web.is_live(kFirstHead));
  CHECK(!web.is_live(kHub));
  CHECK(!web.is_live(kFirstLeaf, kFewLeaves));
  CHECK(web.is_live(0, kRecords));
  std::vector<uint64_t> led_to;
  web.lookalikes->each_stale_word(
      [&](const sweeper::Word& word) { led_to.push_back(word.target); });
  CHECK(led_to == std::vector<uint64_t>{web.graph.start(kFirstHead)});
  for (uint64_t block : web.lookalikes->in_doubt()) web.graph.blocks.mark(block);
  CHECK(web.is_live(kFirstHead) && web.is_live(kHub));
  CHECK(web.is_live(kFirstLeaf, kFewLeaves));
}

CASE(a_field_holds_all_that_it_leads_to) {
  Web web(kFewLeaves);
  web.hold(0, 0);
  web.doubt();
  CHECK(web.is_live(kFirstHead) && web.is_live(kHub));
  CHECK(web.is_live(kFirstLeaf, kFewLeaves));
  CHECK(web.lookalikes->in_doubt().empty());
}

// A block that is held otherwise, too, holds all below it.
CASE(what_something_else_holds_as_well_is_not_in_doubt) {
  Web web(kFewLeaves);
  web.hold(0, 0);
  web.dangle(1);
  web.graph.point(2, kPlace + 1, kHub);
  web.doubt();
  CHECK(!web.is_live(kFirstHead));
  CHECK(web.is_live(kHub));
  CHECK(web.is_live(kFirstLeaf, kFewLeaves));
}

CASE(without_any_stale_word_nothing_is_in_doubt) {
  Web web(kFewLeaves);
  web.graph.memory.put(web.graph.nobodys(8 * kRecords), web.graph.start(kFirstHead));
  web.doubt();
  CHECK(web.is_live(kFirstHead) && web.is_live(kHub));
  CHECK(web.is_live(kFirstLeaf, kFewLeaves));
  CHECK(web.lookalikes->in_doubt().empty());
}

// One odd word alone looks stale.
CASE(an_odd_word_of_a_block_in_use_holds_a_large_structure) {
  constexpr std::size_t kManyLeaves = 100;  // more than an odd word may put in doubt
  Web web(kManyLeaves);
  web.graph.memory.put(web.graph.nobodys(8 * kRecords), web.graph.start(kFirstHead));
  web.graph.point(kFirstHead, 0, kHub, 9);
  web.doubt();
  CHECK(web.is_live(kFirstHead) && web.is_live(kHub));
  CHECK(web.is_live(kFirstLeaf, kManyLeaves));
}

// What is lost is mostly like what is leaked elsewhere.
CASE(a_large_structure_unlike_what_is_lost_is_not_in_doubt) {
  constexpr std::size_t kManyLeaves = 100;
  for (std::size_t lost_leaves : {0, 2}) {
    Web web(kManyLeaves, lost_leaves);
    web.hold(0, 0);
    web.dangle(1);
    web.doubt();
    CHECK(!web.is_live(kFirstHead));
    CHECK_EQ(web.is_live(kHub), lost_leaves == 0);
    CHECK_EQ(web.is_live(kFirstLeaf, kManyLeaves), lost_leaves == 0);
  }
}

CASE(an_unaligned_word_does_not_hold_what_stale_words_lead_to) {
  for (std::size_t meant : {kFirstHead, kHub}) {
    Web web(kFewLeaves);
    web.hold(0, 0);
    web.dangle(1);
    web.point_unaligned(2, meant);
    web.doubt();
    CHECK((web.lost_of({kFirstHead, kHub, kFirstLeaf}) ==
           std::vector<std::size_t>{kFirstHead, kHub, kFirstLeaf}));
  }
}

CASE(an_unaligned_word_holds_what_nothing_else_leads_to) {
  Web web(kFewLeaves);
  web.hold(0, 0);
  web.dangle(1);
  web.point_unaligned(2, kFirstHead + 1);
  web.doubt();
  CHECK((web.lost_of({kFirstHead, kFirstHead + 1, kFirstHead + 2, kHub}) ==
         std::vector<std::size_t>{kFirstHead, kFirstHead + 2}));
}

// As many as are lost may be in doubt, whatever hangs below them.
CASE(more_of_a_kind_than_are_lost_are_not_in_doubt) {
  for (std::size_t held : {kHeads / 2, kHeads / 2 + 1}) {
    Web web(kFewLeaves);
    for (std::size_t i = 0; i < held; ++i) web.hold(i, i);
    web.dangle(kRecords - 1);
    web.doubt();
    CHECK_EQ(web.is_live(kFirstHead, held), held > kHeads / 2);
    CHECK_EQ(web.is_live(kFirstLeaf, kFewLeaves), held > kHeads / 2);
  }
}

CASE(too_much_below_a_stale_word_stays_in_use) {
  constexpr std::size_t kLeaves = sweeper::Descendants::kMaxBlocks;
  Web web(kLeaves);
  web.hold(0, 0);
  web.dangle(1);
  web.doubt();
  CHECK(!web.is_live(kFirstHead));
  CHECK(web.is_live(kHub));
  CHECK(web.is_live(kFirstLeaf, kLeaves));
}

}  // namespace
}  // namespace reachscan::tests
