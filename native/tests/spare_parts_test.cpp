// Which words of a block are in parts that are not in use.
#include "sweeper/stale/spare_parts.hpp"

#include <array>
#include <memory>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

constexpr std::size_t kHolder = 0, kArray = 1, kOther = 2, kLost = 3;
constexpr std::size_t kWords = 65, kCapacity = 64;  // one is added by rounding

// A holder of pointers, an array, which it may tell about, a block that the array leads to, and one
// that is lost.
struct Parts {
  Parts() : graph({31, kWords, 21, 31}) {
    for (std::size_t block = kHolder; block <= kOther; ++block)
      graph.blocks.mark(graph.start(block));
  }

  // Puts words into the holder: places in the array, by index.
  void tell(std::size_t at, const std::vector<std::size_t>& places) {
    for (std::size_t place : places) graph.point(kHolder, at++, kArray, 8 * place);
  }
  void lead(std::size_t word, uint64_t offset = 0) { graph.point(kArray, word, kOther, offset); }
  void dangle(std::size_t word) {
    uint64_t free = graph.memory.mappings().front().end - 8;
    CHECK_EQ(graph.blocks.block_of(free), 0u);
    graph.memory.put(graph.start(kArray) + 8 * word, free);
  }

  void find() {
    libc::Threads none;
    sweeper::Roots roots(graph.memory.space(), graph.blocks, none);
    parts = std::make_unique<sweeper::SpareParts>(graph.memory.space(), graph.blocks);
    parts->ask(graph.start(kArray));
    parts->ask(graph.start(kHolder));
    parts->ask(graph.start(kArray));
    parts->find(roots);
  }

  // Returns which words of the array are spare.
  std::vector<std::size_t> spare() {
    find();
    return still_spare();
  }
  std::vector<std::size_t> still_spare() const {
    std::vector<std::size_t> found;
    for (std::size_t word = 0; word < kWords; ++word)
      if (parts->contain(graph.start(kArray), graph.start(kArray) + 8 * word))
        found.push_back(word);
    return found;
  }

  Host host;
  Graph graph;
  std::unique_ptr<sweeper::SpareParts> parts;
};

std::vector<std::size_t> from_to(std::size_t first, std::size_t end) {
  std::vector<std::size_t> words;
  for (; first < end; ++first) words.push_back(first);
  return words;
}

CASE(past_the_end_of_an_array) {
  for (std::size_t used : {std::size_t{0}, std::size_t{20}, kCapacity - 1}) {
    Parts parts;
    parts.tell(3, {0, used, kCapacity});
    parts.dangle(kCapacity - 1);
    CHECK(parts.spare() == from_to(used, kWords));
  }
}

CASE(ahead_of_a_bump_allocator) {
  Parts parts;
  parts.tell(3, {20, kCapacity});
  parts.lead(30, 8);
  CHECK(parts.spare() == from_to(20, kWords));
}

// Words there may be fields of an object if they lead to starts of blocks.
CASE(in_a_vector_without_items) {
  for (uint64_t offset : {0, 8}) {
    Parts parts;
    parts.graph.point(kArray, 3, kArray, 8 * 5);
    parts.graph.memory.put(parts.graph.start(kArray) + 8 * 4, 8ull << 32);  // none of 8
    parts.lead(6, offset);
    CHECK(parts.spare() == (offset == 0 ? from_to(0, 0) : from_to(5, 9)));
    parts.lead(7);
    CHECK(parts.spare().empty());
    parts.dangle(8);
    CHECK(parts.spare() == from_to(5, 9));
  }
}

CASE(what_leads_to_starts_of_blocks_may_have_to_be_read) {
  Parts parts;
  parts.tell(3, {0, 20, kCapacity});
  parts.dangle(19);
  parts.lead(20);
  parts.lead(21, 8);
  CHECK(parts.spare().empty());
}

CASE(a_pointer_into_a_part_shows_that_it_is_in_use) {
  for (std::size_t word : {20, 21, 63, 64}) {
    Parts parts;
    parts.tell(3, {0, 20, kCapacity});
    parts.tell(10, {word});
    parts.graph.point(kArray, 40, kArray, 8 * 30);
    parts.dangle(50);
    bool is_end = word == 20 || word == kCapacity;
    CHECK(parts.spare() == (is_end ? from_to(20, kWords) : from_to(0, 0)));
  }
}

// Unless it turns out to be in use itself.
CASE(a_lost_pointer_into_a_part_shows_nothing) {
  Parts parts;
  parts.tell(3, {0, 20, kCapacity});
  parts.graph.point(kLost, 5, kArray, 8 * 40);
  parts.dangle(50);
  CHECK(parts.spare() == from_to(20, kWords));
  CHECK(!parts.parts->find_use_by(parts.graph.start(kHolder)));
  CHECK(parts.parts->find_use_by(parts.graph.start(kLost)));
  CHECK(!parts.parts->find_use_by(parts.graph.start(kLost)));
  CHECK(parts.still_spare().empty());
}

CASE(a_stack_is_in_use) {
  constexpr uint64_t kCode = 0x7000'0000'0000;
  Parts parts;
  parts.tell(3, {20, kCapacity});
  parts.dangle(50);
  CHECK(parts.spare() == from_to(20, kWords));
  for (std::size_t word : {0, 20}) {
    std::array registers{parts.graph.start(kArray) + 8 * word};
    parts.host.control.words = reinterpret_cast<uint64_t>(registers.data());
    parts.host.control.word_count = registers.size();
    CHECK(parts.spare() == (word < 20 ? from_to(20, kWords) : from_to(0, 0)));
  }
  parts.host.control.word_count = 0;
  parts.graph.memory.map(kCode, heaps::kPage, wire::kRead | wire::kExecute, abi::kFileBacked, 1);
  parts.graph.memory.put(parts.graph.start(kArray) + 8 * 30, kCode + 5);
  CHECK(parts.spare().empty());
}

CASE(the_longest_of_several_arrays_counts) {
  Parts parts;
  parts.tell(3, {0, 20, kCapacity});
  parts.tell(10, {0, 40, kCapacity});
  parts.tell(20, {30, kCapacity});
  parts.dangle(50);
  CHECK(parts.spare() == from_to(40, kWords));
}

CASE(an_end_elsewhere_in_the_block_tells_nothing) {
  for (std::size_t end : {kCapacity - 3, kWords + 1}) {
    Parts parts;
    parts.tell(3, {0, 20, end});
    parts.dangle(50);
    CHECK(parts.spare().empty());
  }
}

// A deque with one node, and a copy of its last iterator.
CASE(outside_of_a_deque) {
  constexpr std::size_t kFirst = 8, kLast = 50, kMap = kOther, kNode = 3, kNodes = 8;
  for (std::size_t nodes : {kNode, kNodes}) {
    Parts parts;
    parts.graph.point(kMap, kNode, kArray);
    parts.graph.point(kHolder, 2, kMap);
    parts.graph.memory.put(parts.graph.start(kHolder) + 8 * 3, nodes);
    for (std::size_t iterator : {4, 8, 20}) {
      parts.tell(iterator, {iterator == 4 ? kFirst : kLast, 0, kCapacity});
      parts.graph.point(kHolder, iterator + 3, kMap, 8 * kNode);
    }
    parts.lead(2);
    std::vector<std::size_t> expected = from_to(0, kFirst), past = from_to(kLast, kWords);
    expected.insert(expected.end(), past.begin(), past.end());
    CHECK(parts.spare() == (nodes == kNodes ? expected : from_to(0, 0)));
  }
}

CASE(an_empty_deque) {
  Parts parts;
  parts.graph.point(kOther, 3, kArray);
  parts.graph.point(kHolder, 2, kOther);
  parts.graph.memory.put(parts.graph.start(kHolder) + 8 * 3, 8);
  for (std::size_t iterator : {4, 8}) {
    parts.tell(iterator, {0, 0, kCapacity});
    parts.graph.point(kHolder, iterator + 3, kOther, 8 * 3);
  }
  CHECK(parts.spare() == from_to(0, kWords));
}

// A holder with a map and its buckets, pairs with the free keys 99 and, if they were removed, 98.
struct Map {
  Map() : graph({31, 2 * kBuckets + 1, 21}) {
    graph.point(0, 3, 1);
    for (uint64_t i = 0; i < kBuckets; ++i) put(2 * i, 99);
  }
  Map(uint64_t entries, uint64_t removed) : Map() {
    tell(4, entries, removed);
    tell(5, kBuckets, 7);
  }
  // Puts two numbers into a word of the holder.
  void tell(std::size_t word, uint64_t low, uint64_t high) {
    graph.memory.put(graph.start(0) + 8 * word, low | high << 32);
  }
  void put(uint64_t word, uint64_t value) { graph.memory.put(graph.start(1) + 8 * word, value); }

  // Returns how many words are spare.
  std::size_t spare() {
    libc::Threads none;
    sweeper::Roots roots(graph.memory.space(), graph.blocks, none);
    auto parts = std::make_unique<sweeper::SpareParts>(graph.memory.space(), graph.blocks);
    parts->ask(graph.start(1));
    parts->find(roots);
    std::size_t count = 0;
    for (uint64_t word = 0; word < graph.words(1); ++word) {
      bool is = parts->contain(graph.start(1), graph.start(1) + 8 * word);
      uint64_t key = heaps::word(graph.start(1) + 8 * (word & ~1ull));
      bool may_be = word >= 2 * kBuckets || (word % 2 == 1 && (key == 99 || key == 98));
      CHECK(!is || may_be);
      count += is ? 1 : 0;
    }
    return count;
  }

  static constexpr uint64_t kBuckets = 64;
  Host host;
  Graph graph;
};

CASE(values_of_free_keys_in_a_map) {
  for (uint64_t entries : {2, 3, 4}) {
    Map map(entries, 1);
    for (uint64_t key : {5, 6, 7, 30}) map.put(2 * key, key);
    map.graph.point(1, 1, 2);
    CHECK_EQ(map.spare(), entries == 3 ? Map::kBuckets - 3 : 0);
  }
}

CASE(values_of_removed_keys_in_a_map) {
  for (uint64_t removed : {1, 2, 3}) {
    Map map(1, removed);
    map.put(2 * 40, 5);
    for (uint64_t i = 0; i < removed; ++i) map.put(2 * (3 + i), 98);
    map.graph.point(1, 1, 2);
    CHECK_EQ(map.spare(), removed == 1 ? Map::kBuckets - 1 : Map::kBuckets);
  }
}

// It tells the numbers of entries and removed keys before its pointer, the first one doubled.
CASE(a_small_map_that_has_grown) {
  for (uint64_t entries : {1, 2}) {
    Map map;
    map.tell(2, 2 * entries, 2);
    map.tell(4, Map::kBuckets, 7);
    map.put(2 * 40, 5);
    for (uint64_t i : {3, 4}) map.put(2 * i, 98);
    map.graph.point(1, 1, 2);
    CHECK_EQ(map.spare(), entries == 1 ? Map::kBuckets : 0);
  }
}

CASE(objects_in_a_row_are_no_empty_map) {
  for (uint64_t offset : {0, 8}) {
    Map map(0, 0);
    map.graph.point(1, 1, 2, offset);
    CHECK_EQ(map.spare(), offset == 0 ? 0 : Map::kBuckets + 1);
  }
}

}  // namespace
}  // namespace reachscan::tests
