// What marking reaches: every live block that an aligned word of a reached one points into.
#include <algorithm>
#include <random>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

CASE(nothing_points_anywhere) {
  Host host;
  Graph graph(5, 3);
  graph.mark();
  graph.check_marks();
  CHECK(!graph.blocks.is_marked(graph.start(0)));
}

CASE(every_interior_byte_keeps_a_block) {
  Host host;
  Graph graph({3, 5, 3});
  for (uint64_t offset = 0; offset < graph.bytes(1); ++offset) {
    sweeper::Marker marker = graph.marker();
    marker.mark_value(graph.start(1) + offset);
    CHECK(graph.blocks.is_marked(graph.start(1)));
    CHECK(!graph.blocks.is_marked(graph.start(0)));
    CHECK(!graph.blocks.is_marked(graph.start(2)));
    graph.blocks.clear_mark(graph.start(1));
  }
}

CASE(neither_the_word_before_nor_one_past_the_end_keeps_a_block) {
  Host host;
  Graph graph({3, 5, 3});
  sweeper::Marker marker = graph.marker();
  for (uint64_t offset = 0; offset < 8; ++offset) {
    marker.mark_value(graph.start(1) - 8 + offset);
    marker.mark_value(graph.start(1) + graph.bytes(1) + offset);
  }
  for (std::size_t block = 0; block < graph.size(); ++block)
    CHECK(!graph.blocks.is_marked(graph.start(block)));
}

CASE(a_pointer_in_any_word_of_a_root_counts) {
  Host host;
  Graph graph(1, 3);
  for (std::size_t at = 0; at < 2000; ++at) {
    std::vector<uint64_t> area(2000);
    area[at] = graph.start(0);
    sweeper::Marker marker = graph.marker();
    auto first = reinterpret_cast<uint64_t>(area.data());
    marker.mark_range(first, first + 8 * area.size());
    CHECK(graph.blocks.is_marked(graph.start(0)));
    graph.blocks.clear_mark(graph.start(0));
  }
}

CASE(a_root_ends_where_it_says) {
  Host host;
  Graph graph(3, 3);
  uint64_t area[] = {graph.start(0), graph.start(1), graph.start(2)};
  auto first = reinterpret_cast<uint64_t>(area);
  sweeper::Marker marker = graph.marker();
  marker.mark_range(first + 8, first + 8);
  CHECK(!graph.blocks.is_marked(graph.start(1)));
  // The last word is incomplete.
  marker.mark_range(first + 8, first + 23);
  CHECK(!graph.blocks.is_marked(graph.start(0)));
  CHECK(graph.blocks.is_marked(graph.start(1)));
  CHECK(!graph.blocks.is_marked(graph.start(2)));
}

CASE(cycles_self_pointers_and_diamonds_end) {
  Host host;
  Graph graph(8, 5);
  graph.point(0, 0, 0, 8);                     // itself
  graph.point(0, 1, 1), graph.point(1, 0, 0);  // a ring of two
  graph.point(1, 1, 2), graph.point(1, 2, 3);  // a diamond
  graph.point(2, 0, 4, 24), graph.point(3, 0, 4, 39);
  graph.point(5, 0, 6), graph.point(6, 0, 5);  // a ring that nothing points into
  graph.point(6, 1, 4);
  graph.root(0);
  graph.mark();
  graph.check_marks();
  CHECK(graph.blocks.is_marked(graph.start(4)));
  CHECK(!graph.blocks.is_marked(graph.start(5)));
}

CASE(the_last_word_of_a_block_is_scanned_and_the_next_header_is_not) {
  Host host;
  Graph graph({3, 3, 3, 3});
  graph.point(0, graph.words(0) - 1, 1);
  // The size of the next chunk is here.
  graph.memory.put(graph.start(0) + graph.bytes(0), graph.start(2));
  graph.root(0);
  graph.mark();
  CHECK(graph.blocks.is_marked(graph.start(1)));
  CHECK(!graph.blocks.is_marked(graph.start(2)));
}

// Words are read four at a time, and some of them twice.
CASE(every_word_of_a_small_block_counts_and_the_next_header_does_not) {
  for (std::size_t words = 1; words <= 20; ++words) {
    Host host;
    std::vector<std::size_t> sizes(30, 3);
    sizes[0] = words;
    Graph graph(sizes);
    std::size_t count = graph.words(0);
    for (std::size_t at = 0; at < count; ++at) graph.point(0, at, 1 + at);
    graph.memory.put(graph.start(0) + graph.bytes(0), graph.start(1 + count));
    graph.root(0);
    graph.mark();
    for (std::size_t block = 0; block < graph.size(); ++block)
      CHECK_EQ(graph.blocks.is_marked(graph.start(block)), block <= count);
  }
}

// The links of a free list point to chunks, and so to the last word of the previous block.
CASE(what_a_free_list_may_have_left_at_the_head_of_a_block_is_no_pointer) {
  for (std::size_t words : {3, 5, 13, 2001}) {
    for (std::size_t at = 0; at < std::min<std::size_t>(words, 8); ++at) {
      context = std::to_string(at) + " of " + std::to_string(words);
      Host host;
      Graph graph({words, 3, 3});
      graph.root(0);
      graph.point(0, at, 1, graph.bytes(1) - 8);
      graph.mark();
      CHECK_EQ(graph.blocks.is_marked(graph.start(1)), at >= 4);
      std::vector<uint64_t> aside;
      graph.put_aside.each_unmarked([&](uint64_t block, uint64_t) { aside.push_back(block); });
      CHECK(aside == (at < 4 ? std::vector{graph.start(1)} : std::vector<uint64_t>{}));
    }
  }
}

// A table of this many pairs, every fourth of them free, and two other blocks.
struct DenseMap {
  DenseMap(std::size_t pairs, uint64_t free_key) : graph({2 * pairs + 1, 3, 3}) {
    for (std::size_t i = 0; i < pairs; ++i)
      graph.memory.put(graph.start(0) + 16 * i, i % 4 == 0 ? free_key : graph.start(0));
    graph.root(0);
  }
  // Whether a value in the first pair counts.
  bool holds_value_of_free_key() {
    graph.point(0, 1, 1);
    graph.mark();
    return graph.blocks.is_marked(graph.start(1));
  }

  Host host;
  Graph graph;
};

constexpr uint64_t kNeverUsed = ~0xfffull, kRemoved = ~0x1fffull;

CASE(the_value_of_a_free_key_is_no_pointer) {
  for (std::size_t pairs : {16, 64, 1024, 65536}) {
    for (std::size_t at : {std::size_t{0}, std::size_t{1}, pairs / 2, pairs - 4, pairs - 1}) {
      context = std::to_string(at) + " of " + std::to_string(pairs);
      DenseMap map(pairs, at % 8 == 0 ? kNeverUsed : kRemoved);
      Graph& graph = map.graph;
      graph.point(0, 2 * at + 1, 1);
      graph.point(0, 2 * pairs - 3, 2);
      graph.mark();
      bool is_free = at % 4 == 0;
      CHECK_EQ(graph.blocks.is_marked(graph.start(1)), !is_free);
      CHECK(graph.blocks.is_marked(graph.start(2)));
      std::vector<uint64_t> aside;
      graph.put_aside.each_unmarked([&](uint64_t block, uint64_t) { aside.push_back(block); });
      CHECK(aside == (is_free ? std::vector{graph.start(1)} : std::vector<uint64_t>{}));
    }
  }
}

CASE(a_set_has_no_values) {
  CHECK(!DenseMap(64, kNeverUsed).holds_value_of_free_key());
  DenseMap set(64, kNeverUsed);
  set.graph.memory.put(set.graph.start(0) + 8 * 7, kNeverUsed);
  CHECK(set.holds_value_of_free_key());
}

CASE(a_table_inside_a_block) {
  for (std::size_t first : {1, 2, 9, 300}) {
    for (std::size_t behind : {0, 1, 500}) {
      context = std::to_string(first) + " words before, " + std::to_string(behind) + " behind";
      Host host;
      Graph graph({first + 2 * 16 + behind, 3, 3});
      for (std::size_t i = 0; i < 4; ++i)
        graph.memory.put(graph.start(0) + 8 * (first + 8 * i), kRemoved);
      graph.point(0, first + 9, 1);
      graph.point(0, first + 2, 2);
      graph.root(0);
      graph.mark();
      // In a larger block, free keys are searched for only at its start.
      CHECK_EQ(graph.blocks.is_marked(graph.start(1)), first + behind > 512);
      CHECK(graph.blocks.is_marked(graph.start(2)));
    }
  }
}

CASE(what_resembles_a_table_holds_all_that_it_points_to) {
  CHECK(DenseMap(8, kNeverUsed).holds_value_of_free_key());
  CHECK(DenseMap(64, ~0xffull).holds_value_of_free_key());
  DenseMap few(64, 0);
  for (std::size_t i : {0, 4, 8}) few.graph.memory.put(few.graph.start(0) + 16 * i, kNeverUsed);
  CHECK(few.holds_value_of_free_key());
}

CASE(other_pointers_into_the_last_words_of_a_block_count) {
  for (uint64_t offset = 0; offset < 24; ++offset) {
    context = "offset " + std::to_string(offset);
    Host host;
    Graph graph(2, 3);
    graph.root(0);
    graph.point(0, 1, 1, offset);
    graph.mark();
    CHECK_EQ(graph.blocks.is_marked(graph.start(1)), offset != 16);
  }
}

// Here, words read together would extend beyond the page.
CASE(small_blocks_at_the_end_of_a_page) {
  for (std::size_t words : {3, 5, 7}) {
    Host host;
    constexpr std::size_t kBlocks = 1000;
    Graph graph(kBlocks, words);
    for (std::size_t i = 0; i + 1 < kBlocks; ++i) graph.point(i, i % words, i + 1);
    graph.root(0);
    graph.mark();
    graph.check_marks();
    CHECK(graph.blocks.is_marked(graph.start(kBlocks - 1)));
  }
}

CASE(a_root_that_points_to_the_last_word_of_a_block_counts) {
  Host host;
  Graph graph(1, 3);
  graph.root(0, 16);
  graph.mark();
  CHECK(graph.blocks.is_marked(graph.start(0)));
}

// Recursion would need a frame for each.
CASE(a_list_of_a_million) {
  Host host;
  constexpr std::size_t kLength = 1000000;
  Graph graph(kLength, 3);
  for (std::size_t i = 0; i + 1 < kLength; ++i) graph.point(i, i % 3, i + 1, i % 16);
  graph.root(0);
  graph.mark();
  std::size_t left = 0;
  graph.blocks.each_unmarked([&](uint64_t) { ++left; });
  CHECK_EQ(left, std::size_t{0});
}

// The scan of a large block is interrupted for the blocks it finds, and must resume in every slice.
CASE(large_blocks_are_scanned_whole) {
  Host host;
  constexpr std::size_t kChildren = 3000;
  std::vector<std::size_t> words(kChildren + 2, 3);
  words[0] = words[1] = 400001;
  Graph graph(words);
  std::size_t step = graph.words(0) / kChildren;
  for (std::size_t i = 0; i < kChildren; ++i) graph.point(i % 2, i * step, i + 2, i % 8);
  graph.point(0, graph.words(0) - 1, 1, graph.bytes(1) - 1);
  graph.point(1, graph.words(1) - 1, 0, 4096);
  graph.root(0, 1 << 20);
  graph.mark();
  graph.check_marks();
  CHECK(graph.blocks.is_marked(graph.start(kChildren + 1)));
}

// Sizes around that of a slice, with a short last slice.
CASE(blocks_around_the_size_of_a_slice) {
  Host host;
  for (std::size_t size = 505; size <= 1030; size += 2) {
    Graph graph({size, 3, 3, 3});
    graph.point(0, 0, 1), graph.point(0, graph.words(0) / 2, 2);
    graph.point(0, graph.words(0) - 1, 3);
    graph.root(0);
    graph.mark();
    for (std::size_t block = 0; block < 4; ++block)
      CHECK(graph.blocks.is_marked(graph.start(block)));
  }
}

// Pages that were never written are skipped, in whole or in part, but nothing after them is.
CASE(blocks_with_pages_that_were_never_written) {
  using heaps::kPage;
  for (std::size_t first = 1; first < 12; ++first) {
    for (std::size_t pages = 1; first + pages <= 12; ++pages) {
      Host host;
      Graph graph({6001, 3, 3, 3});
      graph.memory.leave_out(kWorld + first * kPage, pages * kPage);
      std::size_t behind = ((first + pages) * kPage - (graph.start(0) - kWorld)) / 8;
      // Directly before and after, where the words around a page boundary are.
      graph.point(0, behind - pages * kPage / 8 - 1, 1);
      graph.point(0, std::min(behind, graph.words(0) - 2), 2);
      graph.point(0, graph.words(0) - 1, 3);
      if (first + pages == 12) graph.point(0, 0, 2), graph.point(0, 1, 3);  // up to the end
      graph.root(0);
      graph.mark();
      for (std::size_t block = 0; block < 4; ++block)
        CHECK(graph.blocks.is_marked(graph.start(block)));
    }
  }
}

// A marker finds more at once than it can hold.
CASE(a_heap_full_of_pointers) {
  Host host;
  constexpr std::size_t kBlocks = 300;
  Graph graph(kBlocks, 601);
  for (std::size_t block = 0; block < kBlocks; ++block)
    for (std::size_t w = 0; w < graph.words(block); ++w)
      graph.point(block, w, (block * 7 + w) % kBlocks, w % graph.bytes(0));
  for (std::size_t i = 0; i < 1000; ++i) graph.root(i % kBlocks);
  graph.mark();
  graph.check_marks();
}

CASE(random_graphs_are_marked_as_the_model_says) {
  for (unsigned seed = 1; seed <= 1000; ++seed) {
    context = "seed " + std::to_string(seed);
    std::mt19937_64 random(seed);
    Host host;
    host.control.wide_words = seed % 2 != 0 && arch::has_lanes();
    std::vector<std::size_t> words(1 + random() % 100);
    for (std::size_t& count : words) count = 1 + random() % (random() % 10 == 0 ? 2000 : 12);
    // Half of them one by one, half by address.
    const bool by_address = seed / 2 % 2 != 0;
    if (by_address) words[0] = kMany;
    Graph graph(words);
    graph.connect_randomly(random);
    if (by_address) {
      for (std::size_t w = 0; w < kMany; ++w)
        graph.point(0, w, random() % 2 * random() % graph.size());
      graph.root(0);
    }
    if (seed % 3 != 0) graph.note_blanks();
    graph.mark(by_address ? 1 : sweeper::SharedWorklist::kMinMany);
    graph.check_marks();
    graph.check_extents();
  }
}

// A block's scan is noted at its second granule, which may be in another pair of words or bucket.
CASE(blocks_around_the_edges_of_buckets_are_grey_and_found_again) {
  for (std::size_t first = 1; first < 140; ++first) {
    Host host;
    std::vector<std::size_t> words(6000, 3);
    words[0] = 2 * first + 1;
    Graph graph(words);
    for (std::size_t block = 0; block + 1 < graph.size(); ++block)
      for (std::size_t w = 0; w < 3; ++w) graph.point(block, w, (block * 7 + w * 2999 + 1) % 6000);
    graph.root(1, 8);
    if (first % 2 != 0) graph.note_blanks();
    graph.mark(1);
    graph.check_marks();
    graph.check_extents();
  }
}

// Most words that look like pointers point to memory of the program outside the heap.
CASE(pointers_to_memory_that_is_no_heap) {
  Host host;
  std::vector<std::size_t> words(300, 3);
  words[0] = 60001;
  Graph graph(words);
  for (std::size_t w = 0; w < graph.words(0); ++w)
    graph.memory.put(graph.start(0) + 8 * w, graph.nobodys(w * 2000));
  for (std::size_t block = 1; block < 200; ++block) graph.point(0, block * 300, block);
  for (std::size_t block = 200; block < 300; ++block) graph.point(block - 100, 1, block);
  graph.root(0);
  graph.mark(1);
  graph.check_marks();
  graph.check_extents();
}

// A pointer found in a bucket may lead into a block that starts before the bucket.
CASE(pointers_into_the_middle_of_blocks_that_span_buckets) {
  Host host;
  std::vector<std::size_t> words(2000, 3);
  for (std::size_t block = 0; block < words.size(); block += 20) words[block] = 12001;
  Graph graph(words);
  for (std::size_t block = 0; block < graph.size(); ++block)
    for (std::size_t w = 0; w < 3; ++w) {
      std::size_t to = (block * 31 + w * 20 + 20) % graph.size();
      graph.point(block, w, to, (block * 4093) % graph.bytes(to));
    }
  graph.root(20, 70000);
  graph.mark(1);
  graph.check_marks();
  graph.check_extents();
}

}  // namespace
}  // namespace reachscan::tests
