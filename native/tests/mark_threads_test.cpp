// Several markers on one graph find the same as a single one. Also run under the thread sanitizer.
#include <atomic>
#include <thread>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

// As the sweeper does it, but on threads of the test's own.
void mark_on_threads(Graph& graph, unsigned count,
                     uint64_t least_many = sweeper::SharedWorklist::kMinMany) {
  sweeper::SharedWorklist worklist(graph.blocks, graph.put_aside, least_many);
  std::deque<sweeper::Marker> markers;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i)
    markers.emplace_back(graph.memory.space(), graph.blocks, worklist);
  auto finish = [](sweeper::Marker& marker) { marker.finish([] { std::this_thread::yield(); }); };
  for (unsigned i = 1; i < count; ++i)
    threads.emplace_back([&, i] {
      markers[i].join();
      finish(markers[i]);
    });
  markers[0].mark_range(graph.first_root(), graph.end_of_roots());
  finish(markers[0]);
  for (std::thread& thread : threads) thread.join();
}

CASE(random_graphs_are_marked_as_the_model_says) {
  for (unsigned seed = 1; seed <= 100; ++seed) {
    context = "seed " + std::to_string(seed);
    std::mt19937_64 random(seed);
    Host host;
    std::vector<std::size_t> words(1 + random() % 300);
    for (std::size_t& count : words) count = 1 + random() % (random() % 10 == 0 ? 2000 : 12);
    Graph graph(words);
    graph.connect_randomly(random);
    if (seed % 3 == 0) graph.note_blanks();
    mark_on_threads(graph, 1 + seed % 4, seed % 8 < 4 ? sweeper::SharedWorklist::kMinMany : 1);
    graph.check_marks();
  }
}

// Every block is worth sharing, and all markers meet the same ones.
CASE(markers_that_meet_everywhere) {
  Host host;
  constexpr std::size_t kBlocks = 3000, kWords = 21;
  Graph graph(kBlocks, kWords);
  for (std::size_t block = 0; block < kBlocks; ++block)
    for (std::size_t w = 0; w < kWords; ++w) graph.point(block, w, (block * 31 + w * 7) % kBlocks);
  graph.root(0);
  mark_on_threads(graph, 4);
  graph.check_marks();
}

// Buckets are handed over while other markers put off blocks in them.
CASE(markers_that_meet_in_every_bucket) {
  Host host;
  constexpr std::size_t kBlocks = 40000, kWords = 5;
  Graph graph(kBlocks, kWords);
  for (std::size_t block = 0; block < kBlocks; ++block)
    for (std::size_t w = 0; w < kWords; ++w)
      if ((block + w) % 3 != 0) graph.point(block, w, (block * 7919 + w * 13007 + 1) % kBlocks);
  graph.root(0);
  graph.note_blanks();
  mark_on_threads(graph, 4, 1);
  graph.check_marks();
  graph.check_extents();
}

// A member that sleeps takes nothing. What another one gave it last is still to be done when that
// one is idle, too.
CASE(work_that_is_left_ends_the_wait) {
  Host host;
  Graph graph(1, 3);
  sweeper::SharedWorklist worklist(graph.blocks, graph.put_aside);
  std::atomic<bool> sleeps = false, wakes = false;
  std::thread sleeper([&] {
    worklist.join();
    CHECK(!worklist.wait([&] {
      sleeps = true;
      while (!wakes) std::this_thread::yield();
    }));
  });
  while (!sleeps) std::this_thread::yield();
  auto yield = [] { std::this_thread::yield(); };
  sweeper::Packet* packet = worklist.take_empty();
  worklist.give(packet, 1);
  CHECK(worklist.wait(yield));
  CHECK(worklist.take_given(0, true) == packet);
  CHECK(worklist.give(heaps::Range{8, 16}));
  CHECK(worklist.wait(yield));
  CHECK_EQ(worklist.take_range().start, 8u);
  CHECK(!worklist.wait(yield));
  wakes = true;
  sleeper.join();
}

CASE(a_packet_goes_to_its_owner_first) {
  Host host;
  sweeper::Packets packets;
  sweeper::Packet* first = packets.take_empty();
  sweeper::Packet* second = packets.take_empty();
  packets.give(first, 1);
  packets.give(second, 0);
  CHECK_EQ(packets.given(), 2u);
  CHECK(packets.take_given(2, false) == nullptr);
  CHECK(packets.take_given(0, true) == second);
  CHECK(packets.take_given(0, false) == nullptr);
  CHECK(packets.take_given(0, true) == first);
  CHECK(packets.take_given(1, true) == nullptr);
  packets.put_empty(first);
  CHECK(packets.take_empty() == first);
}

// A marker keeps what it finds for others when there are no packets left: nobody takes any here.
CASE(packets_that_nobody_takes) {
  Host host;
  constexpr std::size_t kBlocks = 100000;
  Graph graph(kBlocks, 3);
  for (std::size_t block = 0; block < kBlocks; ++block)
    for (std::size_t child = 2 * block + 1; child <= 2 * block + 2 && child < kBlocks; ++child)
      graph.point(block, child % 2, child);
  graph.root(0);
  sweeper::SharedWorklist worklist(graph.blocks, graph.put_aside, 1);
  sweeper::Marker marker(graph.memory.space(), graph.blocks, worklist);
  worklist.join();  // a member that does nothing
  sweeper::Packet* last = nullptr;
  while (sweeper::Packet* packet = worklist.take_empty()) last = packet;
  worklist.put_empty(last);
  marker.mark_range(graph.first_root(), graph.end_of_roots());
  graph.check_marks();
}

// A single list: all but one marker wait for its end.
CASE(nothing_to_share) {
  Host host;
  constexpr std::size_t kBlocks = 20000;
  Graph graph(kBlocks, 3);
  for (std::size_t block = 0; block + 1 < kBlocks; ++block) graph.point(block, 1, block + 1);
  graph.root(0);
  mark_on_threads(graph, 3);
  graph.check_marks();
}

// Large blocks and roots are handed over in parts.
CASE(large_memory_is_shared) {
  Host host;
  constexpr std::size_t kBlocks = 2000;
  std::vector<std::size_t> words(kBlocks, 3);
  words[0] = 200001;
  Graph graph(words);
  for (std::size_t block = 2; block < kBlocks; block += 2) {
    graph.point(0, block * 100, block);
    for (unsigned i = 0; i < 30; ++i) graph.root(block - 1);
  }
  graph.root(0);
  mark_on_threads(graph, 4);
  graph.check_marks();
}

}  // namespace
}  // namespace reachscan::tests
