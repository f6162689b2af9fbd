// What the glibc walker finds in healthy heaps of every release.
#include "heaps/glibc/walker.hpp"

#include "check.hpp"
#include "scene.hpp"

namespace reachscan::tests {
namespace {

using heaps::glibc::kNonContiguous;

CASE(every_release_with_and_without_everything) {
  for (const Release& release : releases()) {
    for (unsigned bits = 0; bits < 32; ++bits) {
      Options options{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0,
                      (bits & 16) != 0};
      context = std::string(release.name) + ", options " + std::to_string(bits);
      Scene scene(release, options);
      check_found(scene);
      Found found = walk(scene);
      CHECK_EQ(found.instances, 1u);
      CHECK_EQ(found.arenas, options.thread_arena ? 2u : 1u);
    }
  }
}

CASE(a_process_without_the_library) {
  Memory memory;
  memory.map(kModule, 4 * kPage, kReadWrite, abi::kFileBacked, kLibrary);
  heaps::glibc::Instance found[heaps::glibc::kMaxInstances];
  CHECK_EQ(heaps::glibc::find_instances(memory.space(), found), 0u);
  CHECK_EQ(heaps::glibc::find_instances(heaps::Space(nullptr, 0), found), 0u);
}

// The first malloc makes one bin after the other, and may be stopped at any of them.
CASE(a_library_that_was_never_asked_for_memory) {
  for (const Release& release : releases()) {
    for (unsigned bins : {0u, 1u, 60u, heaps::glibc::kBinPairs}) {
      context = std::string(release.name) + ", " + std::to_string(bins) + " bins";
      Memory memory;
      memory.map(kModule, 2 * kPage, kReadWrite, abi::kFileBacked, kLibrary);
      memory.put(kMainArena + release.arena.next, kMainArena);
      for (unsigned bin = 0; bin < bins; ++bin) {
        uint64_t pair = kMainArena + release.arena.bins + 16ull * bin;
        memory.put(pair, pair - kHeader);
        if (bin + 1 < bins) memory.put(pair + 8, pair - kHeader);
      }
      heaps::glibc::Instance found[heaps::glibc::kMaxInstances];
      CHECK_EQ(heaps::glibc::find_instances(memory.space(), found), 1u);
      CHECK_EQ(found[0].main_arena, kMainArena);
      CHECK_EQ(found[0].layout.next, release.arena.next);
      CHECK(!found[0].used);
    }
  }
}

// malloc was initialised, but has served nothing yet, or only from thread arenas.
CASE(a_main_arena_without_memory) {
  for (const Release& release : releases()) {
    context = release.name;
    Options options;
    options.thread_arena = true, options.cache = false;
    Scene scene(release, options);
    std::erase_if(scene.blocks, [](const auto& block) { return block.first < kThreadHeaps; });
    uint64_t initial_top = kMainArena + release.arena.bins - kHeader;
    scene.glibc.arena(kMainArena, initial_top, scene.thread_arena, 0);
    scene.glibc.empty_fastbins(kMainArena);
    scene.glibc.params(kSbrkBase, 0, 0, 0);
    check_found(scene);
  }
}

// The size of an arena's heaps depends on the system's huge pages.
CASE(heaps_of_every_size) {
  for (uint64_t size = 1 << 20; size <= 4ull << 30; size *= 2) {
    context = "heaps of " + std::to_string(size);
    const Release& release = release_named("2.35");
    Scene scene(release, {});
    uint64_t first = kWorld + (16ull << 30), second = first + size;
    uint64_t arena = first + release.heap_info;
    for (uint64_t heap : {first, second}) scene.memory.map(heap, size / 2);
    scene.glibc.heap_info(first, arena, 0, size / 2);
    scene.glibc.heap_info(second, arena, first, size / 2);
    Chunks full(scene.memory, heaps::align_up(arena + release.arena.size, 16), 4);
    full.live(first + size / 2 - 0x1000 - full.at());
    full.end_heap(0x1000);
    Chunks newest(scene.memory, second + release.heap_info, 4);
    newest.live(size / 2 - 0x100);
    uint64_t top = newest.top(second + size / 2);
    scene.expect(full.blocks);
    scene.expect(newest.blocks);
    scene.glibc.arena(arena, top, kMainArena, size, kNonContiguous);
    scene.memory.put(kMainArena + release.arena.next, arena);
    check_found(scene);
  }
}

// What sysmalloc leaves at the end of a full heap depends on the remaining size of the top chunk.
CASE(every_way_in_which_a_heap_ends) {
  for (const char* name : {"2.26", "2.35", "2.43"}) {
    for (uint64_t rest = 0x20; rest <= 0x100; rest += 0x10) {
      context = std::string(name) + ", top chunk of " + std::to_string(rest);
      const Release& release = release_named(name);
      Options options;
      options.thread_arena = true;
      Scene scene(release, options);
      Chunks chunks(scene.memory, heaps::align_up(scene.thread_arena + release.arena.size, 16), 4);
      for (uint64_t at = chunks.at(); at < scene.full_heap_end; at += 8) scene.memory.put(at, 0);
      std::erase_if(scene.blocks, [&](const auto& block) {
        return block.first > scene.full_heap && block.first < scene.full_heap_end;
      });
      while (chunks.at() + 0x1000 < scene.full_heap_end) chunks.live(0x400);
      chunks.live(scene.full_heap_end - rest - chunks.at());
      chunks.end_heap(rest);
      scene.expect(chunks.blocks);
      check_found(scene);
    }
  }
}

CASE(every_way_in_which_the_break_was_cut) {
  for (uint64_t rest = 0x20; rest <= 0x100; rest += 0x10) {
    for (uint64_t gap : {0x10, 0x1000, 0x2340}) {
      context = "top chunk of " + std::to_string(rest) + ", gap of " + std::to_string(gap);
      Scene scene(release_named("2.35"), {});
      Chunks chunks(scene.memory, scene.main_top);
      chunks.live(0x100);
      chunks.end_break(rest);
      Chunks more(scene.memory, chunks.at() + gap);
      more.live(0x80);
      uint64_t top = more.top(kBreak + (64 << 10));
      scene.expect(chunks.blocks);
      scene.expect(more.blocks);
      scene.memory.put(kMainArena + scene.release.arena.top, top);
      check_found(scene);
    }
  }
}

// Where brk fails, the main arena gets memory from mmap, anywhere; the kernel merges adjacent
// mappings.
CASE(a_main_arena_that_is_not_contiguous) {
  for (const Release& release : releases()) {
    context = release.name;
    Options options;
    options.cache = false;
    Scene scene(release, options);
    uint64_t other = kWorld + (4ull << 30), small = 34 * kPage, count = 5;
    scene.memory.map(other, (count + 1) * small);
    // Such numbers at the start of a page are not a chunk.
    scene.memory.put(other + 8, 0x21), scene.memory.put(other + 40, 1);
    Chunks closed(scene.memory, scene.main_top);
    closed.end_break(kBreak + (64 << 10) - closed.at());
    // The newest is the lowest.
    Chunks newest(scene.memory, other + small);
    newest.live(0x100);
    uint64_t top = newest.top(other + 2 * small);
    scene.expect(newest.blocks);
    for (uint64_t n = 2; n <= count; ++n) {
      uint64_t left = 16 * n;  // of the top chunk when it was closed
      Chunks chunks(scene.memory, other + n * small);
      chunks.live(small - left);
      chunks.end_break(left);
      scene.expect(chunks.blocks);
    }
    scene.glibc.arena(kMainArena, top, kMainArena, (64 << 10) + count * small, kNonContiguous);
    scene.glibc.put_in_fastbin(kMainArena, scene.fast);
    check_found(scene);
  }
}

// A free chunk at the start of a page, after a zero, looks like such memory but is another arena's.
CASE(a_main_arena_that_is_not_contiguous_next_to_thread_heaps) {
  const Release& release = release_named("2.35");
  Scene scene(release, {});
  uint64_t heap = kWorld + (5ull << 30), size = 2 << 20;
  uint64_t arena = heap + release.heap_info, newest = heap + (64 << 20);
  scene.memory.map(heap, size);
  scene.memory.map(newest, size);
  scene.glibc.heap_info(heap, arena, 0, size);
  scene.glibc.heap_info(newest, arena, heap, size);
  Chunks full(scene.memory, heaps::align_up(arena + release.arena.size, 16), 4);
  full.live(heap + 2 * kPage - full.at());
  full.free(0x400);
  full.live(heap + size - 0x1000 - full.at());
  full.end_heap(0x1000);
  Chunks current(scene.memory, newest + release.heap_info, 4);
  uint64_t top = current.top(newest + size);
  scene.expect(full.blocks);
  scene.glibc.arena(arena, top, kMainArena, 2 * size, kNonContiguous);
  scene.memory.put(kMainArena + release.arena.next, arena);
  scene.memory.store<uint32_t>(kMainArena + heaps::glibc::kFlagsOffset, kNonContiguous);
  check_found(scene);
}

// A program may protect pages of its blocks, in any heap.
CASE(protected_pages_within_heaps) {
  for (const Release& release : releases()) {
    context = release.name;
    Scene scene(release, {.thread_arena = true});
    scene.memory.protect(kBreak + 8 * kPage, 2 * kPage, 0);
    check_found(scene);
    context += ", thread arena";
    // The page is inside the one large block of the newest heap, not at its ends.
    uint64_t heap = kThreadHeaps + kHeapMax;
    Chunks chunks(scene.memory, heap + release.heap_info, 4);
    std::erase_if(scene.blocks, [&](const auto& block) { return block.first > heap; });
    chunks.live(0x4000);
    uint64_t top = chunks.top(heap + 8 * kPage);
    scene.expect(chunks.blocks);
    scene.glibc.arena(scene.thread_arena, top, kMainArena, 24 * kPage, kNonContiguous);
    scene.glibc.empty_fastbins(scene.thread_arena);
    scene.memory.protect(heap + 2 * kPage, kPage, wire::kRead);
    check_found(scene);
    scene.memory.protect(heap + kPage, kPage, 0);
    check_found(scene);
  }
}

// After dlmopen there are two libraries, each with its own heap.
CASE(two_copies_of_the_library) {
  const Release& release = release_named("2.35");
  Scene scene(release, {});
  uint64_t module = kWorld + (6ull << 30), heap = module + (16 << 20), bytes = 2 << 20;
  scene.memory.map(module, 2 * kPage, kReadWrite, abi::kFileBacked, kLibrary + 1);
  scene.memory.map(heap, bytes);
  Chunks chunks(scene.memory, heap);
  chunks.live(0x100);
  uint64_t top = chunks.top(heap + bytes);
  scene.expect(chunks.blocks);
  scene.glibc.arena(module + 0x140, top, module + 0x140, bytes, kNonContiguous);
  check_found(scene);
  CHECK_EQ(walk(scene).instances, 2u);
}

// The memory after the top chunk of one may be a region of the other.
CASE(two_copies_of_the_library_that_got_regions_side_by_side) {
  const Release& release = release_named("2.35");
  Scene scene(release, {});
  uint64_t module = kWorld + (6ull << 30), first = module + (16 << 20), size = 40 * kPage;
  scene.memory.map(module, 2 * kPage, kReadWrite, abi::kFileBacked, kLibrary + 1);
  scene.memory.map(first, 4 * size);
  Chunks closed_break(scene.memory, scene.main_top);
  closed_break.end_break(kBreak + (64 << 10) - scene.main_top);
  uint64_t arenas[] = {kMainArena, module + 0x140}, got[] = {(64 << 10) + 2 * size, 2 * size};
  for (uint64_t i : {0, 1}) {
    Chunks newest(scene.memory, first + i * size);
    newest.live(0x100);
    uint64_t top = newest.top(first + (i + 1) * size);
    Chunks older(scene.memory, first + (2 + i) * size);
    older.live(size - 0x40);
    older.end_break(0x40);
    scene.expect(newest.blocks);
    scene.expect(older.blocks);
    scene.glibc.arena(arenas[i], top, arenas[i], got[i], kNonContiguous);
  }
  scene.glibc.put_in_fastbin(kMainArena, scene.fast);
  check_found(scene);
}

// Writes lea rdi, [rip + main_arena]. Code that names the arena is the allocator's.
void put_allocator_code(Scene& scene, uint64_t at) {
  scene.memory.store<uint8_t>(at, 0x48);
  scene.memory.store<uint8_t>(at + 1, 0x8d);
  scene.memory.store<uint8_t>(at + 2, 0x3d);
  scene.memory.store<int32_t>(at + 3, static_cast<int32_t>(kMainArena - (at + 7)));
}

// Writes a call and returns its return address.
uint64_t put_call(Scene& scene, uint64_t at, uint64_t target) {
  scene.memory.store<uint8_t>(at, 0xe8);
  scene.memory.store<int32_t>(at + 1, static_cast<int32_t>(target - (at + 5)));
  return at + 5;
}

// Writes mov eax, number; syscall. Returns the address after it.
uint64_t put_system_call(Scene& scene, uint64_t at, uint32_t number) {
  scene.memory.store<uint8_t>(at, 0xb8);
  scene.memory.store<uint32_t>(at + 1, number);
  scene.memory.store<uint8_t>(at + 5, 0x0f);
  scene.memory.store<uint8_t>(at + 6, 0x05);
  return at + 7;
}

constexpr uint32_t kReadCall = 0, kBrkCall = 12, kFutexCall = 202;

CASE(who_is_inside_the_allocator) {
  for (const Release& release : releases()) {
    context = release.name;
    Scene scene(release, {.thread_arena = true});
    uint64_t at = kCode + 3 * kPage - 16;
    put_allocator_code(scene, at);
    CHECK(walk(scene).quiet);
    scene.threads[0].pc = at;
    Found found = walk(scene);
    CHECK(!found.quiet);
    CHECK(found.hint.text.contains(at));
    CHECK_EQ(found.hint.mutex_count, 2u);
    CHECK_EQ(found.hint.mutexes[1], scene.thread_arena);
    // After a system call that the allocator does not make, the code need not be searched.
    CHECK_EQ(put_system_call(scene, at - 7, kReadCall), at);
    found = walk(scene);
    CHECK(found.quiet);
    CHECK_EQ(found.hint.text.count, 0u);
    scene.threads[0].pc = kCode + 8;  // in the library, in another function
    CHECK(walk(scene).quiet);
    scene.threads[0].pc = 0x1000;
    scene.memory.store<uint32_t>(scene.thread_arena, 1);
    CHECK(!walk(scene).quiet);
    scene.memory.store<uint32_t>(scene.thread_arena, 0);
    scene.memory.store<uint32_t>(kMainArena, 2);
    CHECK(!walk(scene).quiet);
  }
}

CASE(what_the_allocator_calls_is_inside_it) {
  constexpr uint64_t kAllocator = kCode + 64 * kPage, kFar = kCode + 16 * kPage;
  constexpr uint64_t kBrk = kFar, kSbrk = kFar + 0x100, kOther = kFar + 0x1000;
  Scene scene(release_named("2.35"), {});
  scene.memory.map(kFar, 80 * kPage, wire::kRead | wire::kExecute, abi::kFileBacked, kLibrary);
  put_allocator_code(scene, kAllocator + 0x8000);
  uint64_t to_allocator = put_call(scene, kAllocator + 0x8100, kSbrk);
  uint64_t to_sbrk = put_call(scene, kSbrk + 0x20, kBrk);
  uint64_t to_other = put_call(scene, kOther + 0x20, kBrk);
  abi::Thread& thread = scene.threads[0];
  auto quiet_with = [&](uint32_t number, std::initializer_list<uint64_t> stack) {
    thread.pc = put_system_call(scene, kBrk, number);
    uint64_t at = thread.sp;
    for (uint64_t word : stack) scene.memory.put(at, word), at += 8;
    return walk(scene).quiet;
  };
  CHECK(!quiet_with(kBrkCall, {to_sbrk, 1, 2, to_allocator}));
  CHECK(quiet_with(kReadCall, {to_sbrk, 1, 2, to_allocator}));
  // Other code called sbrk() or brk(). Below are words left by an earlier call.
  CHECK(quiet_with(kBrkCall, {to_sbrk, 1, 2, 3}));
  CHECK(quiet_with(kBrkCall, {to_other, 1, 2, to_allocator}));
  scene.memory.store<uint8_t>(kOther + 0x40, 0xff);  // call *rax
  scene.memory.store<uint8_t>(kOther + 0x41, 0xd0);
  CHECK(quiet_with(kBrkCall, {kOther + 0x42, 1, 2, to_allocator}));
  // The top of the stack may be a leftover too, so a caller after it counts.
  CHECK(!quiet_with(kBrkCall, {kOther + 0x42, to_sbrk, 1, 2, to_allocator}));
}

CASE(who_waits_for_an_arena_is_inside_the_allocator) {
  constexpr uint64_t kAllocator = kCode + 64 * kPage, kWait = kCode + 16 * kPage;
  Scene scene(release_named("2.35"), {});
  scene.memory.map(kWait, 80 * kPage, wire::kRead | wire::kExecute, abi::kFileBacked, kLibrary);
  put_allocator_code(scene, kAllocator + 0x8000);
  abi::Thread& thread = scene.threads[0];
  thread.pc = put_system_call(scene, kWait, kFutexCall);
  auto quiet_with = [&](uint64_t caller, abi::Sleep sleep) {
    scene.memory.put(thread.sp, put_call(scene, caller, kWait));
    thread.sleep = sleep;
    return walk(scene).quiet;
  };
  // The lock may be free by now. A thread that has been told so sleeps no more.
  CHECK(!quiet_with(kAllocator + 0x8100, abi::Sleep::kForLock));
  CHECK(!quiet_with(kAllocator + 0x8100, abi::Sleep::kNoOrUnknown));
  CHECK(quiet_with(kAllocator + 0x8100, abi::Sleep::kOtherwise));
  CHECK(quiet_with(kWait + 0x1000, abi::Sleep::kForLock));
  // The function that waits may be next to the allocator's.
  put_allocator_code(scene, thread.pc + 0x100);
  CHECK(quiet_with(kCode + 8, abi::Sleep::kForLock));
}

CASE(the_name_is_the_librarys_own) {
  Scene scene(release_named("2.35"), {});
  char name[heaps::kNameLength];
  heaps::glibc::Instance instance{kMainArena, scene.release.arena, kLibrary, true};
  heaps::glibc::write_name(scene.memory.space(), instance, name);
  CHECK_EQ(std::string(name), std::string("glibc 2.99"));
  instance.file = kLibrary + 1;
  heaps::glibc::write_name(scene.memory.space(), instance, name);
  CHECK_EQ(std::string(name), std::string("glibc"));
}

}  // namespace
}  // namespace reachscan::tests
