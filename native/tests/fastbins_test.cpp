// Fastbins long enough to be followed from several places at once. Also run under the thread
// sanitizer.
#include <algorithm>
#include <random>

#include "check.hpp"
#include "heaps/glibc/walker.hpp"
#include "scene.hpp"

namespace reachscan::tests {
namespace {

using heaps::Verdict;

constexpr uint64_t kHeap = kWorld + (5ull << 30), kHeapBytes = 8 << 20;
constexpr uint64_t kSizes[] = {0x20, 0x40, 0xb0};

// A thread arena with blocks of three sizes, two thirds of them in fastbins, in random order.
class LongFastbins {
 public:
  explicit LongFastbins(const Release& release) : scene(release, {}) {
    arena_ = kHeap + release.heap_info;
    scene.memory.map(kHeap, kHeapBytes);
    scene.glibc.heap_info(kHeap, arena_, 0, kHeapBytes);
    Chunks chunks(scene.memory, heaps::align_up(arena_ + release.arena.size, 16), 4);
    for (unsigned i = 0; i < 60'000; ++i) {
      uint64_t size = kSizes[i % 3];
      if (i / 3 % 3 == 0) {
        live.push_back(chunks.live(size));
      } else {
        lists[i % 3].push_back(chunks.used(size));
      }
    }
    uint64_t top = chunks.top(kHeap + kHeapBytes);
    scene.expect(chunks.blocks);
    scene.glibc.arena(arena_, top, kMainArena, kHeapBytes, heaps::glibc::kNonContiguous);
    scene.memory.put(kMainArena + release.arena.next, arena_);
    std::mt19937_64 random(1);
    for (auto& list : lists) {
      std::shuffle(list.begin(), list.end(), random);
      scene.glibc.put_in_fastbin(arena_, list);
    }
  }

  // Writes what allocation leaves in a block: the link that it held in the list.
  void link(uint64_t user, uint64_t to_user) {
    uint64_t chunk = to_user - kHeader;
    scene.memory.put(user, scene.release.links == Links::kMangled ? chunk ^ (user >> 12) : chunk);
  }

  // Live blocks of one size.
  std::vector<uint64_t> live_of(unsigned size) const {
    std::vector<uint64_t> of_size;
    for (std::size_t i = size; i < live.size(); i += 3) of_size.push_back(live[i]);
    return of_size;
  }

  Scene scene;
  std::vector<uint64_t> live, lists[3];

 private:
  uint64_t arena_;
};

template <typename Check>
void with_fastbins_of_each_release(Check check) {
  for (const Release& release : releases()) {
    if (release.arena.fastbins == 0) continue;
    context = release.name;
    LongFastbins fastbins(release);
    check(fastbins);
  }
}

// By one thread, which is repeatable, and by several.
void check_found_by_any(const Scene& scene) {
  check_found(scene);
  check_found(scene, on_three_threads);
}

CASE(long_lists) {
  with_fastbins_of_each_release([](LongFastbins& fastbins) { check_found_by_any(fastbins.scene); });
}

CASE(live_blocks_that_still_hold_links) {
  with_fastbins_of_each_release([](LongFastbins& fastbins) {
    for (unsigned size = 0; size < 3; ++size) {
      const auto& list = fastbins.lists[size];
      std::size_t place = 0;
      for (uint64_t block : fastbins.live_of(size))
        fastbins.link(block, list[(place += 7919) % list.size()]);
    }
    check_found_by_any(fastbins.scene);
  });
}

CASE(live_blocks_that_hold_each_other_as_if_they_were_a_list) {
  with_fastbins_of_each_release([](LongFastbins& fastbins) {
    for (unsigned size = 0; size < 3; ++size) {
      auto blocks = fastbins.live_of(size);
      std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(2));
      for (std::size_t i = 0; i + 1 < blocks.size(); ++i) fastbins.link(blocks[i], blocks[i + 1]);
      // A cycle, a list that leads nowhere, and one that leads into the middle of the real one.
      uint64_t ends[] = {blocks[0], fastbins.live_of((size + 1) % 3)[0],
                         fastbins.lists[size][5000]};
      fastbins.link(blocks.back(), ends[size]);
    }
    check_found_by_any(fastbins.scene);
  });
}

CASE(long_lists_that_are_not_consistent) {
  with_fastbins_of_each_release([](LongFastbins& fastbins) {
    for (unsigned size = 0; size < 3; ++size) {
      const auto& list = fastbins.lists[size];
      const auto& other = fastbins.lists[(size + 1) % 3];
      uint64_t live = fastbins.live_of((size + 1) % 3)[0];
      fastbins.link(live, kHeader);
      for (std::size_t place : {std::size_t{5000}, list.size() / 2, list.size() - 1}) {
        // Its start, its middle, itself, a place without a chunk, another list, another block,
        // unmapped memory.
        for (uint64_t target : {list[0], list[place / 2], list[place], list[0] + 16, other[0],
                                other.back(), live, kHeap + 2 * kHeapBytes}) {
          fastbins.link(list[place], target);
          for (heaps::OnThreads on_threads : {alone, on_three_threads})
            CHECK_EQ(walk(fastbins.scene, on_threads).verdict.status, Verdict::kInvalid);
        }
        if (place + 1 < list.size()) fastbins.link(list[place], list[place + 1]);
      }
      fastbins.link(list.back(), kHeader);  // the end
    }
    check_found_by_any(fastbins.scene);
  });
}

// They are so short that both are followed to the end, at the same pace.
CASE(lists_of_two_arenas_with_the_same_chunks) {
  with_fastbins_of_each_release([](LongFastbins& fastbins) {
    auto first = fastbins.lists[0].begin();
    fastbins.scene.glibc.put_in_fastbin(kMainArena, {first, first + 100});
    for (heaps::OnThreads on_threads : {alone, on_three_threads})
      CHECK_EQ(walk(fastbins.scene, on_threads).verdict.status, Verdict::kInvalid);
  });
}

}  // namespace
}  // namespace reachscan::tests
