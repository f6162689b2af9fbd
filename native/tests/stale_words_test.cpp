// Which words need not hold the blocks that they lead to.
#include "check.hpp"
#include "doubted.hpp"

namespace reachscan::tests {
namespace {

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

// Unless such words lead to many blocks: copies of one stale word lead to few.
CASE(words_after_the_contents_to_many_blocks_of_a_kind) {
  constexpr std::size_t kOwners = 100, kHolders = 16, kLost = kOwners + kHolders;
  for (std::size_t targets : {1, 5, 16}) {
    std::vector<std::size_t> words(kOwners, 5);
    words.insert(words.end(), 2 * kHolders, 7);
    Host host;
    Graph graph(words);
    for (std::size_t i = 0; i < kOwners; ++i) graph.root(i);
    for (std::size_t i = 0; i < kHolders; ++i) graph.point(i, 4, kOwners + i % targets);
    mark_and_doubt(graph, kLost);
    CHECK_EQ(graph.blocks.is_marked(graph.start(kOwners)), targets == 16);
  }
}

// Or unless few blocks look like the owner beyond the first word.
CASE(a_word_after_the_contents_of_a_rare_structure) {
  constexpr std::size_t kOwners = 20, kTarget = kOwners, kLost = kTarget + 1;
  for (std::size_t alike : {1, 3, 4, 20}) {
    std::vector<std::size_t> words(kOwners, 5);
    words.insert(words.end(), 3, 7);
    Host host;
    Graph graph(words);
    for (std::size_t i = 0; i < kOwners; ++i) graph.root(i);
    for (std::size_t i = 0; i < alike; ++i) graph.point(i, 1, i);
    graph.point(0, 4, kTarget);
    mark_and_doubt(graph, kLost);
    CHECK_EQ(graph.blocks.is_marked(graph.start(kTarget)), alike < 4);
  }
}

// Or unless it leads behind the number of objects in an array.
CASE(a_word_after_the_contents_to_an_array_of_objects) {
  constexpr std::size_t kOwners = 12, kTarget = kOwners, kLost = kTarget + 1;
  for (uint64_t objects : {7, 8, 9, 16, 17}) {
    std::vector<std::size_t> words(kOwners, 5);
    words.insert(words.end(), 3, 17);
    Host host;
    Graph graph(words);
    for (std::size_t i = 0; i < kOwners; ++i) graph.root(i);
    for (std::size_t i : {kTarget, kLost, kLost + 1}) graph.memory.put(graph.start(i), objects);
    graph.point(0, 4, kTarget, 8);
    mark_and_doubt(graph, kLost);
    bool is_array = objects == 8 || objects == 16;
    CHECK_EQ(graph.blocks.is_marked(graph.start(kTarget)), is_array);
  }
}

// Such a word may be a link of a free list, which need not hold a block of any kind, unless it is a
// field.
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

// A link into the middle of a block looks like any pointer, but the size of its chunk is ahead of
// it and the other one, which leads to the end of another block, or to a bin. An array's end is
// next to where the array continues.
CASE(a_link_into_the_middle_of_a_block) {
  constexpr std::size_t kOwner = 0, kTarget = 1, kLost = 2, kOther = 3, kBin = 4;
  for (std::size_t other : {kTarget, kOther, kBin}) {
    for (std::size_t place : {6, 8, 9}) {
      for (uint64_t size : {0x31, 0x39}) {
        for (uint64_t offset : {24, 32}) {
          Host host;
          Graph graph({21, 9, 3, 9});
          graph.root(kOwner);
          graph.root(kOther);
          for (uint64_t bin : {64, 80})
            for (uint64_t link : {16, 24})
              graph.memory.put(graph.nobodys(bin + link), graph.nobodys(bin));
          graph.point(kOwner, 7, kTarget, offset);
          graph.point(kLost, 0, kTarget);
          uint64_t next = other == kBin ? graph.nobodys(64) : graph.start(other) + 64;
          graph.memory.put(graph.start(kOwner) + 8 * place, next);
          graph.memory.put(graph.start(kOwner) + 8 * (place == 6 ? 5 : 6), size);
          mark_and_doubt(graph, kLost);
          bool is_in_doubt = other != kTarget && place != 9 && size == 0x31 && offset == 32;
          CHECK_EQ(graph.blocks.is_marked(graph.start(kTarget)), !is_in_doubt);
        }
      }
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

// What links lead to is in doubt. A word into the middle of another such block is stale, too, if a
// block like its owner has a word there that leads into a block of another size, unless more such
// blocks are in use, or far more are in doubt than leaked.
CASE(a_word_into_a_block_like_those_in_doubt) {
  constexpr std::size_t kOwner = 0, kLost = 1, kOther = 2, kAsked = 3, kFirst = 4;
  constexpr std::size_t kWords = 11, kPlace = 7;
  for (std::size_t in_doubt : {1, 2, 16, 17}) {
    for (std::size_t in_use : {1, 2, 3}) {
      for (uint64_t offset : {0, 24}) {
        for (std::size_t other : {kOther, kAsked}) {
          std::vector<std::size_t> sizes{41, 41, 13};
          sizes.insert(sizes.end(), in_doubt + in_use, kWords);
          Host host;
          Graph graph(sizes);
          graph.root(kOwner);
          graph.root(kOther);
          graph.memory.put(graph.nobodys(0), graph.start(kOther));
          graph.point(kOwner, kPlace, kAsked, offset);
          graph.point(kLost, kPlace, other, 24);
          for (std::size_t i = 0; i < in_doubt; ++i) {
            graph.point(kOwner, kPlace + 1 + i, kFirst + i, 8 * (kWords - 1));
            graph.point(kLost, kPlace + 1 + i, kFirst + i);
          }
          for (std::size_t i = 1; i < in_use; ++i) graph.root(kFirst + in_doubt + i - 1);
          mark_and_doubt(graph, kLost);
          CHECK(!graph.blocks.is_marked(graph.start(kFirst)));
          bool are_alike = in_doubt >= 2 && in_doubt <= 16 && in_use <= in_doubt;
          bool looks_stale = are_alike && offset != 0 && other == kOther;
          CHECK_EQ(graph.blocks.is_marked(graph.start(kAsked)), !looks_stale);
        }
      }
    }
  }
}

// A link behind a number shows that a small block has not been set any further.
CASE(a_word_in_a_block_with_nothing_but_a_tag) {
  constexpr std::size_t kOwner = 0, kTarget = 1, kLost = 2;
  for (std::size_t words : {5, 7, 9}) {
    for (uint64_t first : {uint64_t{3}, uint64_t{1} << 40}) {
      for (uint64_t offset : {48, 64}) {
        for (std::size_t place : {2, 4}) {
          Host host;
          Graph graph({words, 9, 3});
          graph.root(kOwner);
          graph.memory.put(graph.start(kOwner), first);
          graph.point(kOwner, 1, kTarget, offset);
          graph.point(kOwner, place, kTarget);
          mark_and_doubt(graph, kLost);
          bool is_old = words != 9 && first == 3 && offset == 64;
          CHECK_EQ(graph.blocks.is_marked(graph.start(kTarget)), !is_old);
        }
      }
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

}  // namespace
}  // namespace reachscan::tests
