// The order of leaks: each head of a leaked structure once, followed by its descendants.
#include "sweeper/leaks/collect.hpp"

#include <map>
#include <memory>
#include <random>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

std::vector<Leak> collect(Graph& graph, const Host& host) {
  sweeper::Origins origins(nullptr, nullptr);
  auto writer =
      std::make_unique<sweeper::LeakWriter>(graph.memory.space(), graph.blocks, origins, nullptr);
  sweeper::collect_leaks(graph.memory.space(), graph.blocks, *writer);
  writer->finish();
  std::vector<Leak> leaks = host.leaks();
  CHECK_EQ(writer->leaks.blocks, leaks.size());
  uint64_t bytes = 0, direct = 0;
  for (const Leak& leak : leaks) {
    bytes += leak.size;
    if (leak.parent == wire::kDirect) ++direct;
  }
  CHECK_EQ(writer->leaks.bytes, bytes);
  CHECK_EQ(writer->direct.blocks, direct);
  return leaks;
}

// Checks that every leak is reported once and nothing else is, with the size and leading words that
// are in memory.
void check_each_once(const Graph& graph, const std::vector<Leak>& leaks,
                     const std::vector<bool>& live) {
  std::vector<bool> seen = live;
  for (const Leak& leak : leaks) {
    std::size_t block = graph.block_at(leak.address);
    CHECK(block != graph.size());
    CHECK(!seen[block]);
    seen[block] = true;
    CHECK_EQ(leak.address, graph.start(block));
    CHECK_EQ(leak.size, graph.bytes(block));
    for (std::size_t w = 0; w < leak.words.size(); ++w)
      CHECK_EQ(leak.words[w], w < graph.words(block) ? heaps::word(leak.address + 8 * w) : 0);
  }
  for (bool is_seen : seen) CHECK(is_seen);
}

// Checks that a parent comes first, belongs to the same head, and really points to its child.
void check_parents(const std::vector<Leak>& leaks) {
  std::vector<std::size_t> head(leaks.size());
  for (std::size_t i = 0; i < leaks.size(); ++i) {
    if (leaks[i].parent == wire::kDirect) {
      head[i] = i;
      continue;
    }
    CHECK(i > 0 && leaks[i].parent < i);
    const Leak& parent = leaks[leaks[i].parent];
    bool points = false;
    for (uint64_t at = parent.address; at < parent.address + parent.size; at += 8)
      points = points || heaps::word(at) - leaks[i].address < leaks[i].size;
    CHECK(points);
    head[i] = head[leaks[i].parent];
    CHECK_EQ(head[i], head[i - 1]);
  }
}

// Computes by brute force which leaked blocks reach which: bit i of reach[j] means that j reaches
// i.
std::vector<uint64_t> closure(const Graph& graph, const std::vector<bool>& live) {
  std::size_t n = graph.size();
  std::vector<uint64_t> reach(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (live[i]) continue;
    reach[i] = 1ull << i;
    for (std::size_t child : graph.children(i))
      if (!live[child]) reach[i] |= 1ull << child;
  }
  for (std::size_t via = 0; via < n; ++via)
    for (uint64_t& from : reach)
      if ((from >> via & 1) != 0) from |= reach[via];
  return reach;
}

// Checks that there is one head for each strongly connected component that no other one points
// into.
void check_heads(const Graph& graph, const std::vector<Leak>& leaks,
                 const std::vector<bool>& live) {
  std::vector<uint64_t> reach = closure(graph, live);
  uint64_t heads = 0;
  for (const Leak& leak : leaks)
    if (leak.parent == wire::kDirect) heads |= 1ull << graph.block_at(leak.address);
  for (std::size_t block = 0; block < graph.size(); ++block) {
    if (live[block]) continue;
    uint64_t above = 0;
    for (std::size_t other = 0; other < graph.size(); ++other)
      above |= (reach[other] >> block & 1) << other;
    uint64_t component = above & reach[block];
    bool source = above == component;
    CHECK_EQ(__builtin_popcountll(component & heads), source ? 1 : 0);
  }
}

std::size_t count_heads(const std::vector<Leak>& leaks) {
  std::size_t heads = 0;
  for (const Leak& leak : leaks) heads += leak.parent == wire::kDirect ? 1 : 0;
  return heads;
}

// Marks, collects and compares with the model. Returns the number of heads.
std::size_t heads_of(Graph& graph, const Host& host) {
  std::vector<bool> live = graph.reachable_from_roots();
  graph.mark();
  std::vector<Leak> leaks = collect(graph, host);
  check_each_once(graph, leaks, live);
  check_parents(leaks);
  if (graph.size() <= 64) check_heads(graph, leaks, live);
  return count_heads(leaks);
}

CASE(no_leaks_send_nothing) {
  Host host;
  Graph graph(3, 3);
  for (std::size_t block = 0; block < 3; ++block) graph.root(block);
  CHECK_EQ(heads_of(graph, host), 0u);
  CHECK(host.frames(wire::kLeaks).empty());
}

CASE(unrelated_leaks_are_all_heads) {
  Host host;
  Graph graph(4, 3);
  graph.root(2);
  CHECK_EQ(heads_of(graph, host), 3u);
}

CASE(a_block_that_points_to_itself_is_a_head) {
  Host host;
  Graph graph(1, 3);
  graph.point(0, 1, 0, 16);
  CHECK_EQ(heads_of(graph, host), 1u);
}

CASE(a_head_over_a_chain_both_ways_through_memory) {
  Host host;
  Graph graph(6, 3);
  graph.point(0, 0, 1), graph.point(1, 2, 2, 23);
  graph.point(5, 0, 4), graph.point(4, 1, 3);
  CHECK_EQ(heads_of(graph, host), 2u);
}

CASE(a_ring_without_a_way_in_has_one_head) {
  for (std::size_t length : {2, 3, 4, 10}) {
    Host host;
    Graph graph(length, 3);
    for (std::size_t i = 0; i < length; ++i) graph.point(i, 0, (i + 1) % length);
    CHECK_EQ(heads_of(graph, host), 1u);
  }
}

CASE(a_ring_against_address_order_has_one_head) {
  Host host;
  Graph graph(50, 3);
  for (std::size_t i = 0; i < 50; ++i) graph.point((i + 1) % 50, 0, i);
  CHECK_EQ(heads_of(graph, host), 1u);
}

CASE(two_rings_and_two_heads_over_rings) {
  Host host;
  Graph graph(10, 3);
  graph.point(0, 0, 1), graph.point(1, 0, 0);
  graph.point(2, 0, 3), graph.point(3, 0, 2);
  graph.point(4, 0, 5), graph.point(5, 0, 6), graph.point(6, 0, 5);
  graph.point(7, 0, 8), graph.point(8, 0, 7), graph.point(9, 0, 7);
  CHECK_EQ(heads_of(graph, host), 4u);
}

CASE(a_ring_that_a_ring_points_into_is_no_head) {
  for (bool upwards : {true, false}) {
    Host host;
    Graph graph(4, 3);
    graph.point(0, 0, 1), graph.point(1, 0, 0), graph.point(2, 0, 3), graph.point(3, 0, 2);
    upwards ? graph.point(1, 1, 2) : graph.point(2, 1, 1);
    CHECK_EQ(heads_of(graph, host), 1u);
  }
}

CASE(a_block_below_two_heads_belongs_to_one) {
  Host host;
  Graph graph(4, 3);
  graph.point(0, 0, 1), graph.point(2, 0, 1), graph.point(1, 0, 3);
  CHECK_EQ(heads_of(graph, host), 2u);
}

CASE(diamonds_and_overlapping_rings) {
  Host host;
  Graph graph(9, 3);
  graph.point(0, 0, 1), graph.point(0, 1, 2), graph.point(1, 0, 3), graph.point(2, 0, 3);
  graph.point(4, 0, 5), graph.point(5, 0, 6), graph.point(6, 0, 4);
  graph.point(5, 1, 7), graph.point(7, 0, 5), graph.point(8, 0, 8);
  CHECK_EQ(heads_of(graph, host), 3u);
}

CASE(leaks_that_point_to_live_blocks) {
  Host host;
  Graph graph(4, 3);
  graph.root(1);
  graph.point(1, 0, 2);
  graph.point(0, 0, 1), graph.point(3, 0, 2), graph.point(3, 1, 0);
  CHECK_EQ(heads_of(graph, host), 1u);
  CHECK(graph.blocks.is_marked(graph.start(2)));
}

// Of a ring's members, an object with a class is the most informative.
CASE(the_head_of_a_ring_is_the_member_with_a_class) {
  for (std::size_t object = 0; object < 5; ++object) {
    Host host;
    Graph graph(5, 3);
    uint64_t constants = kWorld + (1ull << 30);
    graph.memory.map(constants, heaps::kPage, wire::kRead, abi::kFileBacked, 1);
    for (std::size_t i = 0; i < 5; ++i) graph.point(i, 1, (i + 1) % 5);
    graph.memory.put(graph.start(object), constants + 16);
    CHECK_EQ(heads_of(graph, host), 1u);
    CHECK_EQ(host.leaks().front().address, graph.start(object));
  }
}

// A std::set in an object without virtual functions. The nodes are at lower addresses.
CASE(the_head_of_a_tree_is_what_holds_its_header) {
  Host host;
  Graph graph({4, 4, 4, 8});
  std::size_t root = 1, owner = 3;
  graph.point(root, 1, owner, 24), graph.point(owner, 4, root);
  for (std::size_t node : {0, 2})
    graph.point(node, 1, root), graph.point(owner, 5 + node / 2, node);
  graph.point(root, 2, 0), graph.point(root, 3, 2);
  CHECK_EQ(heads_of(graph, host), 1u);
  CHECK_EQ(host.leaks().front().address, graph.start(owner));
}

// A std::list as the first member of an object, which differs from the nodes only in size.
CASE(the_head_of_a_list_is_what_holds_it) {
  Host host;
  Graph graph({3, 3, 9, 3});
  for (std::size_t i = 0; i < 4; ++i)
    graph.point(i, 0, (i + 1) % 4), graph.point((i + 1) % 4, 1, i);
  CHECK_EQ(heads_of(graph, host), 1u);
  CHECK_EQ(host.leaks().front().address, graph.start(2));
}

// Links in the middle of lost blocks. The owner differs in size.
CASE(the_head_of_a_ring_of_a_c_program_is_what_differs_from_the_others) {
  Host host;
  Graph graph({5, 5, 9, 5});
  for (std::size_t i = 0; i < 4; ++i)
    graph.point(i, 2, (i + 1) % 4, 16), graph.point((i + 1) % 4, 3, i, 16);
  CHECK_EQ(heads_of(graph, host), 1u);
  CHECK_EQ(host.leaks().front().address, graph.start(2));
}

// A std::unordered_map: the list of nodes starts in the owner, and a bucket points there.
CASE(the_head_of_a_hash_table_is_what_holds_its_buckets) {
  Host host;
  Graph graph({19, 7, 3});
  std::size_t buckets = 0, owner = 1, node = 2;
  graph.point(owner, 0, buckets), graph.memory.put(graph.start(owner) + 8, 19);
  graph.point(owner, 2, node), graph.point(buckets, 11, owner, 16);
  CHECK_EQ(heads_of(graph, host), 1u);
  CHECK_EQ(host.leaks().front().address, graph.start(owner));
}

CASE(a_giant_ring) {
  Host host;
  constexpr std::size_t kLength = 200001;
  Graph graph(kLength, 3);
  // The step is coprime to the length, so the ring visits all of memory in jumps.
  for (std::size_t i = 0; i < kLength; ++i) graph.point(i, 1, (i + 77773) % kLength, i % 16);
  CHECK_EQ(heads_of(graph, host), 1u);
}

CASE(a_head_over_a_giant_ring) {
  Host host;
  constexpr std::size_t kLength = 100000;
  Graph graph(kLength + 1, 3);
  for (std::size_t i = 0; i < kLength; ++i) graph.point(i, 0, (i + 1) % kLength);
  graph.point(kLength, 0, kLength / 2);
  CHECK_EQ(heads_of(graph, host), 1u);
}

CASE(a_list_of_a_million) {
  Host host;
  constexpr std::size_t kLength = 1000000;
  Graph graph(kLength, 3);
  for (std::size_t i = 0; i + 1 < kLength; ++i) graph.point(i + 1, 0, i);
  CHECK_EQ(heads_of(graph, host), 1u);
}

CASE(a_large_leak_over_many) {
  Host host;
  std::vector<std::size_t> words(5001, 3);
  words[2500] = 20001;
  Graph graph(words);
  for (std::size_t i = 0; i <= 5000; ++i)
    if (i != 2500) graph.point(2500, 4 * i, i);
  CHECK_EQ(heads_of(graph, host), 1u);
}

CASE(random_graphs_have_the_heads_that_the_model_says) {
  for (unsigned seed = 1; seed <= 1500; ++seed) {
    context = "seed " + std::to_string(seed);
    std::mt19937_64 random(seed);
    Host host;
    std::vector<std::size_t> words(1 + random() % 40);
    for (std::size_t& count : words) count = 1 + random() % 12;
    Graph graph(words);
    // With around one edge per block, graphs range from isolated blocks to one knot.
    for (std::size_t edges = random() % (2 * graph.size() + 1); edges > 0; --edges) {
      std::size_t from = random() % graph.size(), to = random() % graph.size();
      graph.point(from, random() % graph.words(from), to, random() % (graph.bytes(to) + 8));
    }
    for (std::size_t roots = random() % 3; roots > 0; --roots) graph.root(random() % graph.size());
    heads_of(graph, host);
  }
}

// Only heads include more than their leading words, and only if they are longer.
CASE(contents_of_direct_leaks) {
  Host host;
  host.control.contents_bytes = 100;
  Graph graph({3, 8, 9, 40, 40});
  graph.point(3, 0, 4);
  for (std::size_t w = 1; w < 40; ++w) graph.memory.put(graph.start(3) + 8 * w, 0x1111 * w);
  CHECK_EQ(heads_of(graph, host), 4u);
  std::map<uint64_t, uint64_t> lengths;
  for (const Frame& frame : host.frames(wire::kContents)) {
    auto at = reinterpret_cast<uint64_t>(frame.payload.data());
    CHECK_EQ(heaps::load<uint32_t>(at), 1u);
    uint64_t address = host.leaks()[heaps::load<uint32_t>(at + 4)].address;
    uint64_t length = heaps::load<uint32_t>(at + 8);
    CHECK_EQ(frame.payload.size(), 12 + length);
    CHECK(std::equal(frame.payload.begin() + 12, frame.payload.end(),
                     reinterpret_cast<const unsigned char*>(address)));
    lengths[address] = length;
  }
  std::map<uint64_t, uint64_t> expected{
      {graph.start(1), graph.bytes(1)}, {graph.start(2), graph.bytes(2)}, {graph.start(3), 100}};
  CHECK(lengths == expected);
}

}  // namespace
}  // namespace reachscan::tests
