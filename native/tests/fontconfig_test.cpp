// What is recognised as a pattern, or a set of characters, of fontconfig.
#include "sweeper/meanings/fontconfig.hpp"

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

constexpr std::size_t kOwner = 0, kFirst = 1, kSecond = 2, kFirstLeaf = 3, kLeaves = 3;

struct Structure {
  explicit Structure(std::size_t first_words, std::size_t second_words = 3)
      : graph({5, first_words, second_words, 5, 5, 5}) {}

  void put(std::size_t block, std::size_t word, uint64_t value) {
    graph.memory.put(graph.start(block) + 8 * word, value);
  }
  void put_numbers(std::size_t block, std::size_t word, uint64_t low, uint64_t high) {
    put(block, word, low | high << 32);
  }
  // Puts the distance to a block into another.
  void lead(std::size_t from, std::size_t word, std::size_t to) {
    put(from, word, graph.start(to) - graph.start(from));
  }
  bool is_distance(std::size_t word) const {
    const sweeper::Fontconfig fontconfig(graph.memory.space(), graph.blocks);
    uint64_t start = graph.start(kOwner);
    return fontconfig.is_distance({start, graph.blocks.end_of(start)}, start + 8 * word);
  }

  Host host;
  Graph graph;
};

struct Pattern : Structure {
  static constexpr std::size_t kCount = 3, kRoom = 16;

  explicit Pattern(std::size_t elements_words = 2 * kRoom + 1) : Structure(elements_words) {
    put_numbers(kOwner, 0, kCount, kRoom);
    lead(kOwner, 1, kFirst);
    for (std::size_t i = 0; i < kCount; ++i) put(kFirst, 2 * i, 1 + 4 * i);
  }
};

CASE(the_elements_of_a_pattern) {
  Pattern pattern;
  CHECK(pattern.is_distance(1));
  CHECK(!pattern.is_distance(0) && !pattern.is_distance(2));
}

CASE(elements_are_as_many_as_there_is_room_for) {
  for (std::size_t words : {27, 29, 37, 39}) {
    Pattern other(words);
    CHECK(!other.is_distance(1));
  }
  for (uint64_t count : {0, 17}) {
    Pattern other;
    other.put_numbers(kOwner, 0, count, Pattern::kRoom);
    CHECK(!other.is_distance(1));
  }
}

CASE(elements_are_ordered) {
  for (uint64_t object : {1, 5}) {
    Pattern pattern;
    pattern.put(kFirst, 4, object);
    CHECK(!pattern.is_distance(1));
  }
}

CASE(elements_begin_where_a_block_begins) {
  Pattern pattern;
  pattern.put(kOwner, 1, pattern.graph.start(kFirst) + 16 - pattern.graph.start(kOwner));
  CHECK(!pattern.is_distance(1));
}

struct Set : Structure {
  Set() : Structure(9) {
    put_numbers(kOwner, 0, 1, kLeaves);
    lead(kOwner, 1, kFirst);
    lead(kOwner, 2, kSecond);
    for (std::size_t i = 0; i < kLeaves; ++i) lead(kFirst, i, kFirstLeaf + i);
    put(kSecond, 0, 0x0003'0002'0001);
  }
};

CASE(the_parts_of_a_set) {
  Set set;
  CHECK(set.is_distance(1) && set.is_distance(2));
  CHECK(!set.is_distance(0) && !set.is_distance(3));
}

CASE(numbers_are_ordered) {
  Set set;
  set.put(kSecond, 0, 0x0003'0002'0002);
  CHECK(!set.is_distance(1) && !set.is_distance(2));
}

CASE(each_leaf_is_a_block) {
  Set set;
  set.put(kFirst, 1, 8);
  CHECK(!set.is_distance(1) && !set.is_distance(2));
}

}  // namespace
}  // namespace reachscan::tests
