// Several passes over a running target: only what every one of them found the same is a leak.
#include "sweep.hpp"

namespace reachscan::tests {
namespace {

// Observes a heap that nothing points into.
struct Looks : Sweep {
  Looks() : Sweep("2.35") { look(); }

  void look() {
    host.control.task = abi::Task::kListSuspects;
    run();
    known = host.suspects;
  }

  void report() {
    host.control.task = abi::Task::kFindLeaks;
    host.control.only_suspects = 1;
    host.control.suspects = reinterpret_cast<uint64_t>(known.data());
    host.control.suspect_count = known.size();
    run();
  }

  std::vector<abi::Suspect> known;
};

CASE(a_look_lists_and_reports_nothing) {
  Looks looks;
  std::set<uint64_t> all = looks.all();
  CHECK_EQ(looks.known.size(), all.size());
  for (const abi::Suspect& suspect : looks.known) {
    CHECK_EQ(suspect.size, looks.scene.blocks.at(suspect.start));
    CHECK_EQ(all.erase(suspect.start), 1u);
  }
  CHECK(looks.host.stream.empty());
}

CASE(what_looks_the_same_every_time_is_a_leak) {
  Looks looks;
  looks.report();
  looks.check_leaks(looks.all());
}

CASE(what_was_referenced_once_is_none) {
  Looks looks;
  Scene& scene = looks.scene;
  looks.registers = {scene.leaks[0]};
  looks.look();
  looks.registers.clear();
  looks.report();
  std::set<uint64_t> expected = looks.all();
  expected.erase(scene.leaks[0]);
  looks.check_leaks(expected);
}

CASE(what_has_changed_is_none_nor_what_it_points_to) {
  Looks looks;
  Scene& scene = looks.scene;
  scene.memory.put(scene.leaks[0] + 8, scene.leaks[1]);
  looks.report();
  std::set<uint64_t> expected = looks.all();
  expected.erase(scene.leaks[0]);
  expected.erase(scene.leaks[1]);
  looks.check_leaks(expected);
}

CASE(what_has_another_size_is_another_block) {
  Looks looks;
  looks.known[2].size += 16;
  looks.report();
  std::set<uint64_t> expected = looks.all();
  expected.erase(looks.known[2].start);
  looks.check_leaks(expected);
}

CASE(without_suspects_there_are_no_leaks) {
  Looks looks;
  looks.known.clear();
  looks.report();
  looks.check_leaks({});
}

}  // namespace
}  // namespace reachscan::tests
