// Contradictory structures end in a verdict, never in a guess, a crash or a hang.
#include <functional>

#include "check.hpp"
#include "heaps/glibc/walker.hpp"
#include "scene.hpp"

namespace reachscan::tests {
namespace {

using heaps::Verdict;
using heaps::glibc::kNonContiguous;

const Options kEverything{.foreign_break = true, .thread_arena = true, .mapped_blocks = true};

// Damages a scene of every release. Each must be refused.
void check_refused(const Options& options, const std::function<void(Scene&)>& damage) {
  for (const Release& release : releases()) {
    context = release.name;
    Scene scene(release, options);
    damage(scene);
    Found found = walk(scene);
    CHECK_EQ(found.verdict.status, Verdict::kInvalid);
    CHECK(found.verdict.reason != nullptr);
  }
}

CASE(sizes_that_no_chunk_has) {
  for (uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{0x10}, uint64_t{0x28}, uint64_t{1} << 40,
                        ~uint64_t{0}, ~uint64_t{0} - 0xf, uint64_t{1} << 63}) {
    check_refused({}, [&](Scene& scene) { scene.memory.put(scene.leaks[1] - 8, size | 1); });
    check_refused(kEverything,
                  [&](Scene& scene) { scene.memory.put(scene.leaks[8] - 8, size | 5); });
  }
}

CASE(a_size_that_leads_into_another_chunk) {
  check_refused({}, [](Scene& scene) { scene.memory.put(scene.leaks[1] - 8, 0x421); });
}

CASE(a_free_chunk_that_does_not_repeat_its_size) {
  check_refused({}, [](Scene& scene) { scene.memory.put(scene.leaks[1] - 16, 0x80); });
}

CASE(a_top_chunk_that_is_none) {
  for (uint64_t top : {uint64_t{0}, uint64_t{8}, ~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{1} << 63,
                       kBreak + 8, kBreak + (64 << 10), kBlocks, kModule, kCode}) {
    for (bool params : {true, false}) {
      check_refused({.foreign_break = true, .params = params}, [&](Scene& scene) {
        scene.memory.put(kMainArena + scene.release.arena.top, top);
      });
      check_refused({.params = params}, [&](Scene& scene) {
        scene.memory.put(kMainArena + scene.release.arena.top, top);
      });
    }
  }
}

CASE(a_top_chunk_of_a_thread_arena_that_is_none) {
  for (uint64_t top :
       {uint64_t{0}, ~uint64_t{0}, kBreak, kModule + 8, kThreadHeaps, kThreadHeaps + kHeapMax}) {
    check_refused({.thread_arena = true}, [&](Scene& scene) {
      scene.memory.put(scene.thread_arena + scene.release.arena.top, top);
    });
  }
}

CASE(a_top_chunk_of_any_size) {
  for (uint64_t size : {uint64_t{0}, uint64_t{8}, uint64_t{1} << 20, ~uint64_t{0}}) {
    check_refused({}, [&](Scene& scene) { scene.memory.put(scene.main_top + 8, size | 1); });
  }
}

CASE(fenceposts_that_are_not_the_end) {
  for (uint64_t second : {uint64_t{0}, uint64_t{0x20}, uint64_t{0x31}, ~uint64_t{0}}) {
    check_refused(kEverything,
                  [&](Scene& scene) { scene.memory.put(scene.full_heap_end - 8, second); });
  }
}

CASE(a_ring_of_arenas_that_does_not_close) {
  for (uint64_t next : {uint64_t{0}, uint64_t{0x20}, ~uint64_t{0}, kBreak + 0x20, kModule}) {
    for (const Release& release : releases()) {
      context = release.name;
      Scene scene(release, {.thread_arena = true});
      scene.memory.put(scene.thread_arena + release.arena.next, next);
      CHECK_EQ(walk(scene).instances, 0u);
      scene.memory.put(scene.thread_arena + release.arena.next, scene.thread_arena);
      CHECK_EQ(walk(scene).instances, 0u);
    }
  }
}

CASE(heaps_of_a_foreign_arena) {
  check_refused({.thread_arena = true}, [](Scene& scene) {
    scene.memory.put(scene.full_heap + kHeapMax, scene.full_heap + 8);
  });
  for (uint64_t previous : {uint64_t{0}, uint64_t{8}, ~uint64_t{0}, kBreak, kModule}) {
    check_refused({.thread_arena = true}, [&](Scene& scene) {
      scene.memory.put(scene.full_heap + kHeapMax + 8, previous);
    });
  }
}

CASE(heaps_of_any_length) {
  for (uint64_t size : {uint64_t{0}, uint64_t{8}, uint64_t{0x48}, kPage, uint64_t{1} << 40,
                        ~uint64_t{0}, 0 - kThreadHeaps}) {
    for (uint64_t heap : {kThreadHeaps, kThreadHeaps + kHeapMax})
      check_refused({.thread_arena = true},
                    [&](Scene& scene) { scene.memory.put(heap + 16, size); });
  }
}

// A cyclic list of heaps beside the arena, long in each round.
CASE(a_ring_of_heaps) {
  const Release& release = release_named("2.35");
  Scene scene(release, {});
  uint64_t size = 64 << 20, first = kWorld + (8ull << 30), second = first + size;
  uint64_t newest = second + size, arena = first + release.heap_info;
  for (uint64_t heap : {first, second, newest}) scene.memory.map(heap, size / 4);
  scene.glibc.heap_info(first, arena, 0, size / 4);
  scene.glibc.heap_info(second, arena, second, size / 4);
  scene.glibc.heap_info(newest, arena, second, size / 4);
  Chunks full(scene.memory, second + release.heap_info, 4);
  while (full.at() + 0x1000 < second + size / 4) full.live(0x20);
  full.end_heap(second + size / 4 - full.at());
  Chunks current(scene.memory, newest + release.heap_info, 4);
  uint64_t top = current.top(newest + size / 4);
  scene.glibc.arena(arena, top, kMainArena, size, kNonContiguous);
  scene.memory.put(kMainArena + release.arena.next, arena);
  CHECK_EQ(walk(scene).verdict.status, Verdict::kInvalid);
}

// A missed region, or one too many, disagrees with the arena's total.
CASE(regions_that_do_not_add_up) {
  for (uint64_t regions : {0, 1, 2}) {
    context = std::to_string(regions) + " regions";
    Scene scene(release_named("2.35"), {.cache = false});
    uint64_t heap = kWorld + (4ull << 30), size = 40 * kPage;
    scene.memory.map(heap, size);
    Chunks closed(scene.memory, heap);
    closed.live(size - 0x40);
    closed.end_break(0x40);
    uint64_t got = (64 << 10) + regions * size;
    scene.glibc.arena(kMainArena, scene.main_top, kMainArena, got, kNonContiguous);
    CHECK_EQ(walk(scene).verdict.fine(), regions == 1);
  }
}

// Memory of a module is no heap, whatever it looks like.
CASE(a_thread_arena_in_a_module) {
  for (const Release& release : releases()) {
    context = release.name;
    Scene scene(release, {});
    uint64_t heap = kWorld + (7ull << 30), size = 16 * kPage, arena = heap + release.heap_info;
    scene.memory.map(heap, size, kReadWrite, abi::kFileBacked, kLibrary + 2);
    scene.glibc.heap_info(heap, arena, 0, size);
    Chunks chunks(scene.memory, heaps::align_up(arena + release.arena.size, 16), 4);
    chunks.live(0x100);
    scene.glibc.arena(arena, chunks.top(heap + size), kMainArena, size, kNonContiguous);
    scene.memory.put(kMainArena + release.arena.next, arena);
    Found found = walk(scene);
    CHECK(found.instances == 0 || found.verdict.status == Verdict::kInvalid);
  }
}

CASE(fastbins_that_are_not_consistent) {
  for (const Release& release : releases()) {
    if (release.arena.fastbins == 0) continue;
    context = release.name;
    Scene whole(release, {});
    uint64_t bin = kMainArena + release.arena.fastbins + 24;
    std::vector<uint64_t> heads = {
        8, ~uint64_t{0}, kModule, whole.leaks[1] - 16, whole.fast[0] - 8, kBreak + (64 << 10) - 16};
    if (release.has_cache()) heads.push_back(whole.cached[0] - 16);
    for (uint64_t head : heads) {
      whole.memory.put(bin, head);
      CHECK_EQ(walk(whole).verdict.status, Verdict::kInvalid);
    }
    whole.memory.put(bin, whole.fast[0] - 16);
    CHECK(walk(whole).verdict.fine());
    whole.glibc.put_in_fastbin(kMainArena, whole.fast, whole.fast[1] - 16);  // a cycle
    CHECK_EQ(walk(whole).verdict.status, Verdict::kInvalid);
  }
}

// Another thread's cache shows what a cache is, so this one must be valid.
CASE(caches_that_are_not_consistent) {
  for (const Release& release : releases()) {
    if (!release.has_cache()) continue;
    context = release.name;
    Scene scene(release, {});
    Chunks chunks(scene.memory, scene.main_top);
    uint64_t cache = chunks.used(release.cache.chunk);
    std::vector<uint64_t> list;
    for (int i = 0; i < 3; ++i) list.push_back(chunks.used(0x70));
    uint64_t other = chunks.used(0x90);
    scene.memory.put(kMainArena + release.arena.top, chunks.top(kBreak + (64 << 10)));
    scene.add_thread(cache);
    auto check_invalid = [&](const std::vector<uint64_t>& users, uint64_t last = 0) {
      scene.glibc.cache(cache);
      scene.glibc.put_in_cache(cache, 5, users, last);
      CHECK_EQ(walk(scene).verdict.status, Verdict::kInvalid);
    };
    check_invalid({list[0], other});         // of another size
    check_invalid({list[0]}, kModule);       // outside the heap
    check_invalid({list[0]}, list[1] + 16);  // inside a block
    check_invalid({list[0]}, list[0]);       // a cycle
    check_invalid(list, list[1]);
    scene.glibc.put_in_cache(cache, 5, list);
    CHECK(walk(scene).verdict.fine());
    // The list is shorter than its counter says.
    scene.memory.store<uint8_t>(cache + 5ull * release.cache.counter_size, 77);
    CHECK_EQ(walk(scene).verdict.status, Verdict::kInvalid);
  }
}

// A list is followed no further than a counter can count.
CASE(circles_in_many_caches) {
  for (const Release& release : releases()) {
    if (!release.has_cache()) continue;
    context = release.name;
    Scene scene(release, {});
    Chunks chunks(scene.memory, scene.main_top);
    for (int i = 0; i < 20; ++i) {
      uint64_t cache = chunks.used(release.cache.chunk), block = chunks.used(0x70);
      scene.glibc.cache(cache);
      scene.glibc.put_in_cache(cache, 5, {block}, block);
      scene.add_thread(cache);
    }
    scene.memory.put(kMainArena + release.arena.top, chunks.top(kBreak + (64 << 10)));
    CHECK_EQ(walk(scene).verdict.status, Verdict::kInvalid);
  }
}

// Foreign memory after the break, in which every place could start a long run of chunks, and none
// does.
CASE(a_foreign_break_full_of_chunk_sizes) {
  const Release& release = release_named("2.35");
  Scene scene(release, {});
  uint64_t bytes = 16 << 20, start = kBreak + (64 << 10), end = start + bytes;
  scene.memory.map(start, bytes, kReadWrite, abi::kProgramBreak);
  Chunks chunks(scene.memory, scene.main_top);
  chunks.end_break(0x1000);
  for (uint64_t at = start; at < end - 2 * kPage; at += 16) scene.memory.put(at + 8, 0x21);
  Chunks more(scene.memory, end - kPage);
  scene.memory.put(kMainArena + release.arena.top, more.top(end));
  scene.memory.put(kMainArena + release.arena.next + 24, end - kBreak);
  // Whether the place after it is found does not matter; the walk must end.
  walk(scene);
}

}  // namespace
}  // namespace reachscan::tests
