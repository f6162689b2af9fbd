// What the glibc walker takes for a thread's cache, and the chunks that it finds there.
#include "check.hpp"
#include "heaps/glibc/walker.hpp"
#include "scene.hpp"

namespace reachscan::tests {
namespace {

CASE(threads_with_and_without_caches) {
  for (const Release& release : releases()) {
    context = release.name;
    if (!release.has_cache()) continue;
    Scene scene(release, {});
    Chunks chunks(scene.memory, scene.main_top);
    uint64_t second = chunks.used(release.cache.chunk + 0x10);  // the remainder was too small
    scene.glibc.cache(second);
    scene.glibc.put_in_cache(second, 5, {chunks.used(0x70), chunks.used(0x70)});
    uint64_t third = chunks.used(release.cache.chunk);
    scene.glibc.cache(third);
    chunks.live(0x70);
    uint64_t top = chunks.top(kBreak + (64 << 10));
    scene.expect(chunks.blocks);
    scene.memory.put(kMainArena + release.arena.top, top);
    scene.add_thread(second);
    scene.add_thread(0);
    scene.add_thread(third);
    scene.add_thread(kModule + 0x20);  // 2.42: a placeholder in the library
    scene.threads.push_back({0, 0, 0});
    scene.threads.push_back({0, 0, 0x1000});
    check_found(scene);
  }
}

// Such a block in use looks like an empty cache: one that contains chunks outvotes it.
CASE(what_looks_like_an_empty_cache_is_none_beside_a_filled_one) {
  for (const Release& release : releases()) {
    context = release.name;
    if (!release.has_cache()) continue;
    Scene scene(release, {});
    Chunks chunks(scene.memory, scene.main_top);
    uint64_t alike = chunks.live(release.cache.chunk);
    scene.glibc.cache(alike);
    scene.memory.put(scene.threads[0].thread_pointer - 8, alike);
    scene.glibc.put_in_cache(scene.cache_block, 5, {chunks.used(0x70)});
    scene.memory.put(kMainArena + release.arena.top, chunks.top(kBreak + (64 << 10)));
    scene.expect(chunks.blocks);
    check_found(scene);
  }
}

// What were the stacks of other threads may name a cache where all of them had its address.
CASE(a_cache_that_many_threads_name_counts_once) {
  for (const Release& release : releases()) {
    context = release.name;
    if (!release.has_cache()) continue;
    Scene scene(release, {});
    Chunks chunks(scene.memory, scene.main_top);
    uint64_t second = chunks.used(release.cache.chunk);
    scene.glibc.cache(second);
    scene.glibc.put_in_cache(second, 5, {chunks.used(0x70)});
    scene.glibc.put_in_cache(scene.cache_block, 5, {chunks.used(0x70)});
    scene.memory.put(kMainArena + release.arena.top, chunks.top(kBreak + (64 << 10)));
    scene.expect(chunks.blocks);
    scene.add_thread(second);
    for (int i = 0; i < 4; ++i) {
      uint64_t thread_pointer = scene.add_thread(0).thread_pointer;
      scene.memory.put(thread_pointer - 0x100, second);
    }
    check_found(scene);
  }
}

CASE(a_cache_that_is_far_from_the_thread_pointer) {
  for (const Release& release : releases()) {
    context = release.name;
    if (!release.has_cache()) continue;
    Scene scene(release, {.cache = false});
    Chunks chunks(scene.memory, scene.main_top);
    uint64_t cache = chunks.used(release.cache.chunk);
    scene.glibc.cache(cache);
    scene.glibc.put_in_cache(cache, 5, {chunks.used(0x70)});
    scene.memory.put(kMainArena + release.arena.top, chunks.top(kBreak + (64 << 10)));
    scene.expect(chunks.blocks);
    uint64_t thread_pointer = scene.add_thread(0).thread_pointer;
    scene.memory.map(thread_pointer - 8 * kPage, 5 * kPage);
    scene.memory.put(thread_pointer - 7 * kPage, cache);
    check_found(scene);
  }
}

// Since 2.42 the last bins hold ranges of large sizes.
CASE(large_blocks_in_a_cache) {
  for (const char* name : {"2.42", "2.43"}) {
    context = name;
    const Release& release = release_named(name);
    Scene scene(release, {});
    Chunks chunks(scene.memory, scene.main_top);
    scene.glibc.put_in_cache(scene.cache_block, 64, {chunks.used(0x500), chunks.used(0x470)});
    scene.glibc.put_in_cache(scene.cache_block, 67, {chunks.used(0x2000)});
    chunks.live(0x600);
    uint64_t top = chunks.top(kBreak + (64 << 10));
    scene.expect(chunks.blocks);
    scene.memory.put(kMainArena + release.arena.top, top);
    check_found(scene);
  }
}

// As in a thread that got no arena, where the address space is limited.
CASE(caches_with_a_mapping_of_their_own) {
  for (const Release& release : releases()) {
    context = release.name;
    if (!release.has_cache()) continue;
    Scene scene(release, {});
    scene.memory.map(kBlocks, 2 * kPage);
    for (uint64_t base : {kBlocks, kBlocks + kPage}) {
      uint64_t cache = scene.glibc.mapped(base, 1);
      scene.glibc.cache(cache);
      scene.add_thread(cache);
    }
    scene.set_mapped(2, 2 * kPage);
    check_found(scene);
  }
}

}  // namespace
}  // namespace reachscan::tests
