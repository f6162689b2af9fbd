// Fills a process's memory with arenas, threads and modules, and records which blocks are leaked.
#include "scene.hpp"

#include "check.hpp"
#include "heaps/glibc/walker.hpp"
#include "hosted.hpp"

namespace reachscan::tests {
namespace {

constexpr uint64_t kNonMain = 4;
constexpr uint64_t kTlsOffset = 0x48;  // of the pointer to the cache, below the thread pointer
constexpr uint64_t kBreakBytes = 64 << 10;

}  // namespace

Scene::Scene(const Release& of, const Options& wanted)
    : release(of), options(wanted), glibc(memory, release) {
  options.cache = options.cache && release.has_cache();
  add_module();
  add_main_heap();
  if (options.thread_arena) add_thread_arena();
  set_mapped(0, 0);
  if (options.mapped_blocks) add_mapped_blocks();
  add_thread(cache_block);
}

void Scene::add_module() {
  memory.map(kModule, 2 * kPage, kReadWrite, abi::kFileBacked, kLibrary);
  memory.map(kCode, 4 * kPage, wire::kRead | wire::kExecute, abi::kFileBacked, kLibrary);
  memory.map(kConstants, kPage, wire::kRead, abi::kFileBacked, kLibrary);
  const char banner[] = "GNU C Library stable release version 2.99.\n";
  __builtin_memcpy(reinterpret_cast<void*>(kConstants + 64), banner, sizeof banner);
}

void Scene::add_main_heap() {
  memory.map(kBreak, kBreakBytes, kReadWrite, abi::kProgramBreak);
  Chunks chunks(memory, kBreak);
  if (options.cache) {
    cache_block = chunks.used(release.cache.chunk);
    glibc.cache(cache_block);
  }
  leaks.push_back(chunks.live(0x30));
  chunks.live(0x20);
  uint64_t binned = chunks.free(0x90);
  leaks.push_back(chunks.live(0x410));
  add_lists(chunks);
  uint64_t end = kBreak + kBreakBytes;
  if (options.foreign_break) {
    add_foreign_break(chunks, end);
  } else {
    main_top = chunks.top(end);
  }
  expect(chunks.blocks);
  glibc.arena(kMainArena, main_top, kMainArena, kBreakBytes);
  glibc.put_in_bin(kMainArena, 0, binned);
  glibc.put_in_fastbin(kMainArena, fast);
}

// Adds chunks that are free although they look allocated.
void Scene::add_lists(Chunks& chunks) {
  if (options.cache) {
    for (int i = 0; i < 4; ++i) cached.push_back(chunks.used(0x40));
    glibc.put_in_cache(cache_block, 2, cached);
    chunks.live(0x40);
    glibc.put_in_cache(cache_block, 0, {chunks.used(0x20)});
  }
  for (int i = 0; i < 3 && release.arena.fastbins != 0; ++i) fast.push_back(chunks.used(0x50));
  chunks.live(0x50);
}

void Scene::add_foreign_break(Chunks& chunks, uint64_t end) {
  leaks.push_back(chunks.live(0x100));
  chunks.end_break(0x1230);
  // Arbitrary contents of foreign memory.
  for (uint64_t at = chunks.at(); at < chunks.at() + 0x800; at += 8)
    memory.put(at, at % 32 == 24 && at < chunks.at() + 0x400 ? 0x21 : at * 0x9e3779b97f4a7c15);
  Chunks more(memory, chunks.at() + 0x800);
  leaks.push_back(more.live(0x200));
  more.free(0x300);
  leaks.push_back(more.live(0x40));
  main_top = more.top(end);
  expect(more.blocks);
}

void Scene::add_thread_arena() {
  full_heap = kThreadHeaps;
  uint64_t newest = kThreadHeaps + kHeapMax;
  thread_arena = full_heap + release.heap_info;
  full_heap_end = full_heap + 16 * kPage;
  memory.map(full_heap, 16 * kPage);
  memory.map(full_heap_end, kHeapMax - 16 * kPage, 0);
  memory.map(newest, 8 * kPage);
  memory.map(newest + 8 * kPage, kHeapMax - 8 * kPage, 0);
  glibc.heap_info(full_heap, thread_arena, 0, 16 * kPage);
  glibc.heap_info(newest, thread_arena, full_heap, 8 * kPage);

  Chunks first(memory, heaps::align_up(thread_arena + release.arena.size, 16), kNonMain);
  for (int i = 0; i < 20; ++i) leaks.push_back(first.live(0x60 + 16ull * i));
  first.free(0x120);
  first.live(0x20);
  first.end_heap(full_heap_end - first.at());
  expect(first.blocks);

  Chunks second(memory, newest + release.heap_info, kNonMain);
  second.live(0x1000);
  std::vector<uint64_t> in_fastbin{second.used(0x30)};
  second.live(0x30);
  uint64_t top = second.top(newest + 8 * kPage);
  expect(second.blocks);
  if (release.arena.fastbins == 0) blocks[in_fastbin[0]] = 0x28;
  glibc.arena(thread_arena, top, kMainArena, 24 * kPage, heaps::glibc::kNonContiguous);
  glibc.put_in_fastbin(thread_arena, in_fastbin);
  memory.put(kMainArena + release.arena.next, thread_arena);
}

void Scene::add_mapped_blocks() {
  memory.map(kBlocks, 21 * kPage);
  uint64_t at = kBlocks;
  // Page-aligned blocks keep a header at their base, which is stale after a realloc.
  for (uint64_t offset : {0, 0x10, 0x30, 0xff0, 0x1ff0}) {
    uint64_t pages = 4 + offset / kPage;
    uint64_t user = glibc.mapped(at, pages, offset);
    at += pages * kPage;
    blocks[user] = at - user - glibc.mapped_tail();
    leaks.push_back(user);
  }
  set_mapped(5, at - kBlocks);
}

abi::Thread& Scene::add_thread(uint64_t cache) {
  uint64_t tls = kStacks + threads.size() * 64 * kPage;
  memory.map(tls, 4 * kPage);
  uint64_t thread_pointer = tls + 3 * kPage;
  memory.put(thread_pointer - kTlsOffset, cache);
  threads.push_back({0x1000, tls + kPage, thread_pointer});
  return threads.back();
}

Found walk(const Scene& scene, heaps::OnThreads on_threads) {
  Host host;
  Found found;
  const heaps::Space& space = scene.memory.space();
  libc::Threads threads{
      scene.threads.data(), scene.threads.size(), {sweeper::map_memory, libc::kMaxExitedThreads}};
  CHECK(libc::find_exited_threads(space, threads, sweeper::map_memory));
  heaps::glibc::Walker walker(space, threads, sweeper::map_memory);
  found.instances = walker.instance_count;
  found.quiet = walker.quiet(found.hint);
  heaps::BlockMap blocks(space, sweeper::map_memory);
  found.verdict = walker.enumerate(blocks, on_threads, 0);
  found.arenas = walker.arenas.size();
  found.mapped_found = walker.mapped_found;
  found.mapped_expected = walker.mapped_expected;
  found.total_blocks = walker.totals.blocks;
  found.total_bytes = walker.totals.bytes;
  found.regions = blocks.regions.size();
  if (!found.verdict.fine()) return found;
  blocks.finish();
  blocks.each_live([&](uint64_t block) { found.blocks[block] = blocks.end_of(block) - block; });
  return found;
}

void check_found(const Scene& scene, heaps::OnThreads on_threads) {
  Found found = walk(scene, on_threads);
  CHECK_EQ(std::string(found.verdict.fine() ? "fine" : found.verdict.reason), std::string("fine"));
  CHECK(found.quiet);
  uint64_t bytes = 0;
  for (const auto& [block, size] : scene.blocks) {
    CHECK_EQ(found.blocks.count(block) != 0 ? block : 0, block);
    CHECK_EQ(found.blocks[block], size);
    bytes += size;
  }
  for (const auto& [block, size] : found.blocks)
    CHECK_EQ(scene.blocks.count(block) != 0 ? block : 0, block);
  CHECK_EQ(found.total_blocks, scene.blocks.size());
  CHECK_EQ(found.total_bytes, bytes);
}

}  // namespace reachscan::tests
