// Which blocks are in doubt because only stale words lead to them.
#include "sweeper/stale/lookalikes.hpp"

#include <memory>

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

// Unmarks what is in doubt in a marked graph.
std::unique_ptr<sweeper::Lookalikes> doubt(Graph& graph) {
  libc::Threads none;
  sweeper::Roots roots(graph.memory.space(), graph.blocks, none);
  auto lookalikes = std::make_unique<sweeper::Lookalikes>(graph.memory.space(), graph.blocks);
  lookalikes->doubt(roots);
  return lookalikes;
}

// Marks a graph, in which this block must be lost, and unmarks what is in doubt.
void mark_and_doubt(Graph& graph, std::size_t lost) {
  graph.mark();
  CHECK(!graph.blocks.is_marked(graph.start(lost)));
  doubt(graph);
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
    lookalikes = tests::doubt(graph);
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
  std::unique_ptr<sweeper::Lookalikes> lookalikes;
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
  web.lookalikes->restore_all_marks();
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

// An odd word that points next to the start of a block is a pointer with a tag, unless many have
// its low byte. One that points elsewhere looks stale even if few do.
CASE(a_tagged_pointer_to_a_small_structure) {
  constexpr std::size_t kOwner = 0, kTarget = 1, kLost = 2, kLarge = 3;
  for (uint64_t offset : {1, 7, 9}) {
    for (std::size_t others : {7, 8}) {
      Host host;
      Graph graph({31, 9, 3, 600});
      graph.root(kOwner);
      graph.root(kLarge);
      graph.point(kOwner, 7, kTarget, offset);
      uint64_t page = (graph.start(kLarge) | 0xff) + 1 + 4096;
      for (std::size_t i = 0; i < others; ++i)
        graph.memory.put(graph.start(kOwner) + 8 * (8 + i),
                         page + (graph.start(kTarget) + offset) % 256);
      mark_and_doubt(graph, kLost);
      bool is_in_doubt = offset == 9 || others == 8;
      CHECK_EQ(graph.blocks.is_marked(graph.start(kTarget)), !is_in_doubt);
    }
  }
}

// A word that rounding up has added to a block is no field, however common its target's kind is.
CASE(a_word_after_the_contents_does_not_hold_a_common_kind) {
  constexpr std::size_t kOwners = 12, kTargets = 40, kLost = 2;
  std::vector<std::size_t> words(kOwners, 5);
  words.insert(words.end(), kTargets + kLost, 7);
  Host host;
  Graph graph(words);
  constexpr std::size_t kHeld = kOwners + kTargets - 1;
  for (std::size_t i = 0; i < kHeld; ++i) graph.memory.put(graph.nobodys(8 * i), graph.start(i));
  graph.point(0, 4, kHeld);
  libc::Threads none;
  sweeper::Roots roots(graph.memory.space(), graph.blocks, none);
  sweeper::Marker marker = graph.marker();
  roots.mark(marker);
  CHECK(graph.blocks.is_marked(graph.start(kHeld)));
  doubt(graph);
  CHECK(!graph.blocks.is_marked(graph.start(kHeld)));
  CHECK(graph.blocks.is_marked(graph.start(kHeld - 1)));
}

// It may be a link of a free list, which need not hold a block of any kind, unless it is a field.
CASE(a_link_after_the_contents) {
  constexpr std::size_t kTarget = 12, kLost = 13, kWords = 5;
  for (std::size_t owners : {7, 12}) {
    for (std::size_t pointers : {1, 4}) {
      for (uint64_t offset : {48, 64}) {
        std::vector<std::size_t> words(owners, kWords);
        words.resize(kTarget, 7);
        words.insert(words.end(), {9, 3});
        Host host;
        Graph graph(words);
        for (std::size_t i = 0; i < kTarget; ++i) graph.root(i);
        for (std::size_t i = 0; i + 1 < pointers; ++i) graph.point(i + 1, kWords - 1, i);
        graph.point(0, kWords - 1, kTarget, offset);
        mark_and_doubt(graph, kLost);
        bool is_link = owners == 12 && pointers == 1 && offset == 64;
        CHECK_EQ(graph.blocks.is_marked(graph.start(kTarget)), !is_link);
      }
    }
  }
}

// It need not hold what a leaked block leads to, wherever it is.
CASE(a_link_among_the_contents) {
  constexpr std::size_t kOwner = 0, kTarget = 1, kLost = 2, kBelow = 3;
  for (uint64_t offset : {0, 48, 64}) {
    for (std::size_t leaked : {kTarget, kBelow}) {
      Host host;
      Graph graph({21, 9, 3, 5});
      graph.root(kOwner);
      graph.point(kOwner, 7, kTarget, offset);
      graph.point(kTarget, 0, kBelow);
      graph.point(kLost, 0, leaked);
      mark_and_doubt(graph, kLost);
      bool is_in_doubt = offset == 64 && leaked == kTarget;
      CHECK_EQ(graph.blocks.is_marked(graph.start(kTarget)), !is_in_doubt);
      CHECK_EQ(graph.blocks.is_marked(graph.start(kBelow)), !is_in_doubt);
    }
  }
}

// Nor need a word that rounding up has added to a block hold what leaked blocks lead to, unless it
// points to its start, or several such words lead to different blocks in the same way.
CASE(a_word_after_the_contents_into_what_a_leak_leads_to) {
  constexpr std::size_t kOwners = 12, kTargets = 2, kLost = kOwners + kTargets;
  for (std::size_t owner_words : {5, 17}) {
    for (std::size_t targets : {std::size_t{1}, kTargets}) {
      for (uint64_t offset : {0, 24}) {
        std::vector<std::size_t> words(kOwners, owner_words);
        words.insert(words.end(), kTargets, 9);
        words.insert(words.end(), kTargets, 3);
        Host host;
        Graph graph(words);
        for (std::size_t i = 0; i < kOwners; ++i) graph.root(i);
        for (std::size_t i = 0; i < targets; ++i) {
          graph.point(i, owner_words - 1, kOwners + i, offset);
          graph.point(kLost + i, 0, kOwners + i);
        }
        mark_and_doubt(graph, kLost);
        bool is_in_doubt = targets == 1 && offset != 0;
        CHECK_EQ(graph.blocks.is_marked(graph.start(kOwners)), !is_in_doubt);
      }
    }
  }
}

// Where all other blocks end with pointers to starts, one into the middle was left behind.
CASE(a_last_word_into_the_middle_where_others_lead_to_starts) {
  for (std::size_t owners : {12, 20}) {
    for (std::size_t inside : {1, 2}) {
      const std::size_t target = owners, held = owners + 1, lost = owners + 2;
      std::vector<std::size_t> words(owners, 5);
      words.insert(words.end(), {9, 11, 3, 3});
      Host host;
      Graph graph(words);
      graph.root(held);
      for (std::size_t i = 0; i < owners; ++i) {
        graph.root(i);
        graph.point(i, 4, i == 0 ? target : held, i < inside ? 24 : 0);
      }
      graph.point(lost, 0, target);
      mark_and_doubt(graph, lost);
      bool is_in_doubt = owners == 20 && inside == 1;
      CHECK_EQ(graph.blocks.is_marked(graph.start(target)), !is_in_doubt);
    }
  }
}

// A large block that has changed at its front is still of the size of those that are lost. Most of
// what it leads to must be like what is lost, too, unless a link leads there.
CASE(a_word_into_a_block_unlike_others_of_its_size) {
  constexpr std::size_t kOwner = 0, kChanged = 1, kLeaf = 2, kOther = 4, kFirstLost = 5;
  for (std::size_t lost : {7, 8}) {
    for (std::size_t words : {13, 21}) {
      for (std::size_t second : {kLeaf + 1, kOther}) {
        for (uint64_t offset : {std::size_t{24}, 8 * (words - 1)}) {
          std::vector<std::size_t> sizes{41, words, 3, 3, 5};
          sizes.insert(sizes.end(), lost, words);
          sizes.insert(sizes.end(), 2, 3);
          Host host;
          Graph graph(sizes);
          graph.root(kOwner);
          graph.point(kOwner, 7, kChanged, offset);
          graph.point(kChanged, 0, kLeaf);
          graph.point(kChanged, 1, second);
          mark_and_doubt(graph, kFirstLost);
          bool is_in_doubt = lost == 8 && words == 21 && (second != kOther || offset != 24);
          CHECK_EQ(graph.blocks.is_marked(graph.start(kChanged)), !is_in_doubt);
          CHECK_EQ(graph.blocks.is_marked(graph.start(kLeaf)), !is_in_doubt);
        }
      }
    }
  }
}

// They are compared with all lost blocks of the size, though one of these may be more alike.
CASE(links_to_several_blocks_unlike_most_of_their_size) {
  constexpr std::size_t kOwner = 0, kChanged = 1, kFirstLost = 3, kLost = 8;
  std::vector<std::size_t> sizes{41};
  sizes.insert(sizes.end(), 2 + kLost, 21);
  Host host;
  Graph graph(sizes);
  graph.root(kOwner);
  for (std::size_t i : {0, 1}) {
    graph.point(kOwner, 7 + i, kChanged + i, 160);
    graph.point(kChanged + i, 0, kChanged + i);
  }
  graph.point(kFirstLost, 0, kFirstLost);
  mark_and_doubt(graph, kFirstLost);
  CHECK(!graph.blocks.is_marked(graph.start(kChanged)));
  CHECK(!graph.blocks.is_marked(graph.start(kChanged + 1)));
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
