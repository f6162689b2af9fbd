// What the sweeper reports about blocks other than leaks: doubts, digests, kinds, and answers to
// queries about one address.
#include <map>
#include <set>

#include "sweep.hpp"

namespace reachscan::tests {
namespace {

uint64_t payload(const Frame& frame) { return reinterpret_cast<uint64_t>(frame.payload.data()); }

struct Row {
  uint64_t slot, value;
  uint32_t holder, index;
  uint64_t block, size;
};

std::vector<Row> rows(const Sweep& sweep, uint32_t type) {
  std::vector<Row> found;
  for (const Frame& frame : sweep.host.frames(type)) {
    CHECK_EQ(frame.payload.size(), 4 + 40 * heaps::load<uint32_t>(payload(frame)));
    for (uint64_t at = payload(frame) + 4; at < payload(frame) + frame.payload.size(); at += 40)
      found.push_back({heaps::word(at), heaps::word(at + 8), heaps::load<uint32_t>(at + 16),
                       heaps::load<uint32_t>(at + 20), heaps::word(at + 24), heaps::word(at + 32)});
  }
  return found;
}

// Maps the address of each possible leak to the reason for the doubt.
std::map<uint64_t, uint32_t> doubts(const Sweep& sweep) {
  std::map<uint64_t, uint32_t> found;
  std::vector<Leak> leaks = sweep.host.leaks();
  for (const Frame& frame : sweep.host.frames(wire::kDoubts)) {
    uint64_t at = payload(frame) + 4;
    CHECK_EQ(heaps::load<uint32_t>(at - 4), 1u);
    for (uint32_t i = 0; i < heaps::load<uint32_t>(at + 4); ++i)
      CHECK(found
                .insert({leaks.at(heaps::load<uint32_t>(at) + i).address,
                         heaps::load<uint32_t>(at + 8)})
                .second);
  }
  return found;
}

struct Answer {
  uint64_t asked, start, size;
  uint32_t state, arena;
};

Answer answer(const Sweep& sweep) {
  std::vector<Frame> frames = sweep.host.frames(wire::kBlock);
  CHECK_EQ(frames.size(), 1u);
  uint64_t at = payload(frames[0]);
  return {heaps::word(at), heaps::word(at + 8), heaps::word(at + 16),
          heaps::load<uint32_t>(at + 24), heaps::load<uint32_t>(at + 28)};
}

CASE(words_that_could_stand_for_pointers_make_doubts) {
  Sweep sweep("2.35");
  const std::vector<uint64_t>& block = sweep.scene.leaks;
  uint64_t tag = 0xbeefull << 48;
  sweep.scene.memory.put(kModule + 0x20, block[0] + sweep.scene.blocks.at(block[0]));
  sweep.registers = {block[1] | tag, block[4] | 1ull << 47};
  sweep.scene.memory.put(block[0], block[2]);
  sweep.scene.memory.put(block[2], block[3] | tag);
  sweep.run();
  std::map<uint64_t, uint32_t> expected{{block[0], wire::kOnePastTheEnd},
                                        {block[1], wire::kTagged},
                                        {block[2], wire::kOnePastTheEnd},
                                        {block[3], wire::kTagged}};
  CHECK(doubts(sweep) == expected);
  sweep.check_leaks(sweep.all());
  for (const Leak& leak : sweep.host.leaks())
    if (leak.address == block[2]) CHECK(leak.parent != wire::kDirect);
}

// A pointer that would be certain in a live block is as doubtful as the block that holds it.
CASE(what_a_doubtful_block_means_is_as_doubtful) {
  Sweep sweep("2.35");
  const std::vector<uint64_t>& block = sweep.scene.leaks;
  sweep.registers = {block[1] | 0xbeefull << 48};
  sweep.scene.memory.put(block[1] + 0x43, block[2]);
  sweep.run();
  std::map<uint64_t, uint32_t> expected{{block[1], wire::kTagged}, {block[2], wire::kTagged}};
  CHECK(doubts(sweep) == expected);
}

CASE(a_pointer_as_setjmp_stores_it_makes_a_doubt) {
  Sweep sweep("2.35");
  uint64_t descriptor = sweep.scene.memory.map(kStacks + (1 << 30), kPage);
  constexpr uint64_t kGuard = 0x5ca1ab1ec0ffee11;
  sweep.scene.memory.put(descriptor + 0x30, kGuard);
  sweep.scene.threads.push_back({0, 0, descriptor});
  uint64_t block = sweep.scene.leaks[0], hidden = (block + 8) ^ kGuard;
  sweep.scene.memory.put(kModule + 0x20, hidden << 17 | hidden >> 47);
  sweep.run();
  CHECK(doubts(sweep) == (std::map<uint64_t, uint32_t>{{block, wire::kMangled}}));
}

// Nothing is mapped after the last of the mmapped blocks.
CASE(the_end_of_a_block_of_its_own_mapping_makes_a_doubt) {
  Sweep sweep("2.35");
  std::vector<uint64_t> mapped;
  for (const auto& [block, size] : sweep.scene.blocks)
    if ((block + size) % kPage == 0) mapped.push_back(block);
  CHECK(mapped.size() > 1);
  for (uint64_t block : mapped) sweep.registers.push_back(block + sweep.scene.blocks.at(block));
  sweep.run();
  CHECK(doubts(sweep) == (std::map<uint64_t, uint32_t>{{mapped.back(), wire::kOnePastTheEnd}}));
}

CASE(digests_tell_contents_and_nothing_else) {
  std::vector<uint64_t> seen;
  for (uint64_t value : {1, 1, 2}) {
    Sweep sweep("2.35");
    sweep.host.control.digests = 1;
    sweep.scene.memory.put(sweep.scene.leaks[0] + 8, value);
    sweep.run();
    std::vector<Frame> frames = sweep.host.frames(wire::kDigests);
    CHECK_EQ(frames.size(), 1u);
    std::vector<Leak> leaks = sweep.host.leaks();
    for (std::size_t i = 0; i < leaks.size(); ++i)
      if (leaks[i].address == sweep.scene.leaks[0])
        seen.push_back(heaps::word(payload(frames[0]) + 4 + 8 * i));
  }
  CHECK_EQ(seen.size(), 3u);
  CHECK_EQ(seen[0], seen[1]);
  CHECK(seen[0] != seen[2]);
}

CASE(kinds_add_up_to_the_heap) {
  Sweep sweep("2.35");
  sweep.host.control.task = abi::Task::kCountKinds;
  sweep.run();
  uint64_t count = 0, bytes = 0, kinds = 0;
  std::set<uint32_t> arenas_of_smallest;
  for (const Frame& frame : sweep.host.frames(wire::kKinds)) {
    uint64_t n = heaps::load<uint32_t>(payload(frame)), at = payload(frame) + 8;
    CHECK_EQ(frame.payload.size(), 8 + n * (40 + 8 * wire::kLeadWords));
    for (uint64_t i = 0; i < n; ++i) {
      uint64_t size = heaps::word(at + 16 * n + 8 * i), example = heaps::word(at + 24 * n + 8 * i);
      CHECK_EQ(heaps::word(at + 8 * n + 8 * i), size * heaps::word(at + 8 * i));
      CHECK_EQ(sweep.scene.blocks.at(example), size);
      if (size == 0x18) arenas_of_smallest.insert(heaps::load<uint32_t>(at + 32 * n + 4 * i));
      count += heaps::word(at + 8 * i);
      bytes += heaps::word(at + 8 * n + 8 * i);
    }
    kinds += n;
  }
  CHECK_EQ(count, sweep.scene.blocks.size());
  CHECK_EQ(bytes, sweep.host.control.totals.bytes);
  CHECK(kinds < count);
  CHECK_EQ(arenas_of_smallest.size(), 2u);
  CHECK(sweep.host.leaks().empty());
}

// The blocks that an answer describes. Checks that each appears once.
std::set<uint64_t> described(const Sweep& sweep) {
  std::set<uint64_t> found;
  for (const Frame& frame : sweep.host.frames(wire::kKinds)) {
    auto n = heaps::load<uint32_t>(payload(frame));
    for (uint32_t i = 0; i < n; ++i) {
      CHECK_EQ(heaps::word(payload(frame) + 8 + 8 * i), 1u);
      CHECK(found.insert(heaps::word(payload(frame) + 8 + 24 * n + 8 * i)).second);
    }
  }
  return found;
}

CASE(the_shortest_way_explains_a_block) {
  Sweep sweep("2.35");
  const std::vector<uint64_t>& block = sweep.scene.leaks;
  Memory& memory = sweep.scene.memory;
  memory.put(kModule + 0x20, block[0] + 4);
  memory.put(block[0], block[1]), memory.put(block[1], block[2]);
  memory.put(block[2] + 8, block[3]);
  sweep.registers = {0, block[2]};
  sweep.host.control.task = abi::Task::kExplain;
  sweep.host.control.query = block[3] + 5;
  sweep.run();
  Answer told = answer(sweep);
  CHECK_EQ(told.state, std::uint32_t{wire::kReachable});
  CHECK_EQ(told.start, block[3]);
  CHECK_EQ(told.size, sweep.scene.blocks.at(block[3]));
  std::vector<Row> way = rows(sweep, wire::kChain);
  CHECK_EQ(way.size(), 2u);
  CHECK_EQ(way[0].holder, std::uint32_t{wire::kRootWord});
  CHECK_EQ(way[0].index, 1u);
  CHECK_EQ(way[1].holder, std::uint32_t{wire::kReachableBlock});
  CHECK_EQ(way[1].slot, block[2] + 8);
  CHECK_EQ(way[1].block, block[2]);
  CHECK_EQ(way[1].value, block[3]);
  CHECK((described(sweep) == std::set<uint64_t>{block[2], block[3]}));
}

CASE(a_leak_is_explained_by_the_leaks_around_it) {
  Sweep sweep("2.35");
  sweep.scene.memory.put(sweep.scene.leaks[0], sweep.scene.leaks[1]);
  sweep.host.control.task = abi::Task::kExplain;
  sweep.host.control.query = sweep.scene.leaks[1];
  sweep.run();
  CHECK_EQ(answer(sweep).state, std::uint32_t{wire::kLeaked});
  CHECK(rows(sweep, wire::kChain).empty());
  sweep.check_leaks(sweep.all());
}

CASE(what_is_no_block_is_said_to_be_none) {
  for (bool freed : {true, false}) {
    Sweep sweep("2.35");
    sweep.host.control.task = abi::Task::kExplain;
    sweep.host.control.query = freed ? sweep.scene.cached[0] : kModule + 0x20;
    sweep.run();
    CHECK_EQ(answer(sweep).state, std::uint32_t{freed ? wire::kNotLive : wire::kNoHeap});
    CHECK_EQ(answer(sweep).start, 0u);
  }
}

CASE(all_references_to_a_block_are_found) {
  Sweep sweep("2.35");
  const std::vector<uint64_t>& block = sweep.scene.leaks;
  Memory& memory = sweep.scene.memory;
  memory.put(kModule + 0x20, block[0]), memory.put(kModule + 0x28, block[1]);
  memory.put(block[1] + 8, block[0] + 8);
  memory.put(block[2], block[0]);
  sweep.registers = {5, block[0]};
  sweep.host.control.task = abi::Task::kFindReferences;
  sweep.host.control.query = block[0];
  sweep.run();
  CHECK_EQ(answer(sweep).state, std::uint32_t{wire::kReachable});
  std::vector<Row> found = rows(sweep, wire::kReferences);
  CHECK_EQ(found.size(), 4u);
  CHECK_EQ(found[0].slot, kModule + 0x20);
  CHECK_EQ(found[1].holder, std::uint32_t{wire::kRootWord});
  CHECK_EQ(found[1].index, 1u);
  std::map<uint64_t, uint32_t> holders;
  for (std::size_t i : {2, 3}) holders[found[i].slot] = found[i].holder;
  CHECK((holders == std::map<uint64_t, uint32_t>{{block[1] + 8, wire::kReachableBlock},
                                                 {block[2], wire::kLeakedBlock}}));
  CHECK((described(sweep) == std::set<uint64_t>{block[0], block[1], block[2]}));
}

}  // namespace
}  // namespace reachscan::tests
