// Later scans are told what earlier ones found lost.
#include "sweep.hpp"

namespace reachscan::tests {
namespace {

// Observes a heap that nothing points into, and then scans it again.
struct Again : Sweep {
  Again() : Sweep("2.35") {
    host.control.task = abi::Task::kListSuspects;
    run();
    known = host.suspects;
    host.control.task = abi::Task::kFindLeaks;
  }

  // Returns the reason to doubt each leak, 0 for none.
  std::map<uint64_t, uint32_t> report() {
    host.control.suspects = reinterpret_cast<uint64_t>(known.data());
    host.control.suspect_count = known.size();
    run();
    std::map<uint64_t, uint32_t> found;
    std::vector<uint64_t> order;
    for (const Leak& leak : host.leaks()) {
      found[leak.address] = 0;
      order.push_back(leak.address);
    }
    for (const Frame& frame : host.frames(wire::kDoubts)) {
      uint32_t row[4];
      std::memcpy(row, frame.payload.data(), sizeof row);
      for (uint32_t i = row[1]; i < row[1] + row[2]; ++i) found[order.at(i)] = row[3];
    }
    return found;
  }

  std::vector<abi::Suspect> known;
};

CASE(a_block_that_a_word_hides_is_possible) {
  Again again;
  uint64_t hidden = again.scene.leaks[0];
  again.registers = {hidden};
  std::map<uint64_t, uint32_t> found = again.report();
  CHECK_EQ(found.size(), again.all().size());
  for (auto [block, reason] : found)
    CHECK_EQ(reason, block == hidden ? static_cast<uint32_t>(wire::kLostBefore) : 0u);
}

CASE(what_it_owned_then_is_possible_too) {
  Again again;
  Scene& scene = again.scene;
  scene.memory.put(scene.leaks[0] + 8, scene.leaks[1]);
  again.host.control.task = abi::Task::kListSuspects;
  again.run();
  again.known = again.host.suspects;
  again.host.control.task = abi::Task::kFindLeaks;
  again.registers = {scene.leaks[0]};
  std::map<uint64_t, uint32_t> found = again.report();
  for (uint64_t block : {scene.leaks[0], scene.leaks[1]})
    CHECK_EQ(found.at(block), static_cast<uint32_t>(wire::kLostBefore));
}

CASE(another_block_at_its_place_is_in_use) {
  Again again;
  uint64_t changed = again.scene.leaks[0], resized = again.scene.leaks[1];
  for (abi::Suspect& suspect : again.known) {
    if (suspect.start == changed) suspect.digest += 1;
    if (suspect.start == resized) suspect.size += 16;
  }
  again.registers = {changed, resized};
  std::map<uint64_t, uint32_t> found = again.report();
  CHECK_EQ(found.count(changed) + found.count(resized), 0u);
  CHECK_EQ(found.size(), again.all().size() - 2);
}

CASE(what_is_no_block_is_ignored) {
  Again again;
  uint64_t block = again.scene.leaks[0];
  again.known = {{0, 16, 0},
                 {8, 16, 0},
                 {block + 8, 16, 0},
                 {0x7000'0000'0000, 32, 0},
                 {~0ull - 7, ~0ull, ~0ull}};
  for (auto [found, reason] : again.report()) CHECK_EQ(reason, 0u);
  again.check_leaks(again.all());
}

CASE(all_can_be_hidden) {
  Again again;
  for (uint64_t block : again.all()) again.registers.push_back(block);
  std::map<uint64_t, uint32_t> found = again.report();
  CHECK_EQ(found.size(), again.all().size());
  for (auto [block, reason] : found) CHECK_EQ(reason, static_cast<uint32_t>(wire::kLostBefore));
}

CASE(without_what_was_found_before_words_hide_blocks) {
  Again again;
  again.known.clear();
  again.registers = {again.scene.leaks[0]};
  CHECK_EQ(again.report().count(again.scene.leaks[0]), 0u);
}

}  // namespace
}  // namespace reachscan::tests
