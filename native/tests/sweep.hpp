// A whole process, swept as in the clone.
#pragma once

#include <set>

#include "check.hpp"
#include "hosted.hpp"
#include "scene.hpp"

extern "C" void reachscan_sweep();

namespace reachscan::tests {

inline const Options kEverything{
    .foreign_break = true, .thread_arena = true, .mapped_blocks = true};

// A scene with the helper's control block.
struct Sweep {
  explicit Sweep(const char* release, const Options& options = kEverything)
      : scene(release_named(release), options) {}

  void run() {
    host.control.words = reinterpret_cast<uint64_t>(registers.data());
    host.control.word_count = registers.size();
    host.describe(scene.memory.mappings(), scene.threads);
    reachscan_sweep();
  }

  // Runs a sweep that must be refused.
  Refused refusal() {
    try {
      run();
    } catch (const Refused& refused) {
      return refused;
    }
    fail(__FILE__, __LINE__, "the sweep was not refused");
  }

  void check_leaks(std::set<uint64_t> expected) {
    for (const Leak& leak : host.leaks()) {
      CHECK_EQ(expected.erase(leak.address) != 0 ? 0 : leak.address, 0u);
      CHECK_EQ(leak.size, scene.blocks.at(leak.address));
    }
    CHECK(expected.empty());
    CHECK(host.finished);
    CHECK_EQ(host.control.totals.leaked, host.leaks().size());
    CHECK_EQ(host.control.totals.allocations, scene.blocks.size());
  }

  std::set<uint64_t> all() const {
    std::set<uint64_t> found;
    for (const auto& [block, size] : scene.blocks) found.insert(block);
    return found;
  }

  Host host;
  Scene scene;
  std::vector<uint64_t> registers;
};

}  // namespace reachscan::tests
