// What counts as a root, and what is excluded from it.
#include "sweeper/roots/roots.hpp"

#include <random>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

using heaps::kPage;

constexpr uint64_t kRoots = kWorld + (1ull << 32);
constexpr uint64_t kDescriptor = libc::kDescriptorBytes;

// Blocks 0, 1, ..., to which words of the roots point, and the mappings of these words.
struct Scene {
  explicit Scene(std::size_t blocks) : graph(blocks, 3) {}

  uint64_t map(uint64_t pages, uint32_t perms, uint32_t flags = 0, uint32_t file = 0) {
    uint64_t start = next;
    graph.memory.map(start, pages * kPage, perms, flags, file);
    next += (pages + 1) * kPage;
    return start;
  }
  void point(uint64_t at, std::size_t block) { graph.memory.put(at, graph.start(block)); }

  template <typename Exclude>
  void mark(Exclude exclude) {
    const heaps::Space& space = graph.memory.space();
    libc::Threads all{
        threads.data(), threads.size(), {sweeper::map_memory, libc::kMaxExitedThreads}};
    CHECK(libc::find_exited_threads(space, all, sweeper::map_memory));
    sweeper::Roots roots(space, graph.blocks, all);
    exclude(roots);
    sweeper::Marker marker = graph.marker();
    roots.mark(marker);
  }
  void mark() {
    mark([](sweeper::Roots&) {});
  }
  bool live(std::size_t block) const { return graph.blocks.is_marked(graph.start(block)); }

  // Writes a thread descriptor at `at` that says where its stack is.
  void describe_thread(uint64_t at, uint64_t stack, uint64_t size) {
    graph.memory.put(at, at);
    graph.memory.put(at + 16, at);
    graph.memory.put(at + 0x690, stack);
    graph.memory.put(at + 0x698, size);
    graph.memory.put(at + 0x6a0, kPage);
  }

  Host host;
  Graph graph;
  std::vector<abi::Thread> threads;
  uint64_t next = kRoots;
};

CASE(which_mappings_are_roots) {
  Scene scene(8);
  constexpr uint32_t kShared = kReadWrite | wire::kShared;
  scene.point(scene.map(1, kReadWrite, abi::kFileBacked, 1), 0);   // .data
  scene.point(scene.map(1, kReadWrite, abi::kFollowsFile, 1), 1);  // .bss
  scene.point(scene.map(1, wire::kRead, abi::kFileBacked | abi::kProtected, 1), 2);
  scene.point(scene.map(1, kShared, abi::kFileBacked, 2), 3);
  scene.point(scene.map(1, kReadWrite), 4);
  scene.point(scene.map(1, wire::kRead, abi::kFileBacked, 1), 5);  // constants
  scene.point(scene.map(1, kReadWrite, abi::kKernelOwned), 6);
  scene.point(scene.map(1, wire::kRead | wire::kExecute, abi::kFileBacked, 1), 7);
  scene.graph.memory.leave_out(scene.map(1, kReadWrite), kPage);
  // Reading these would fault.
  scene.graph.memory.describe(scene.next + 8 * kPage, kPage, 0, 0);
  scene.graph.memory.describe(scene.next + 9 * kPage, kPage, kShared, abi::kUntouchable, 3);
  scene.mark();
  for (std::size_t block = 0; block < 8; ++block) CHECK_EQ(scene.live(block), block < 5);
}

CASE(the_heap_is_no_root) {
  Scene scene(2);
  scene.graph.point(0, 0, 1);
  scene.mark();
  CHECK(!scene.live(1));
}

CASE(registers_are_roots) {
  Scene scene(3);
  uint64_t words[] = {0, scene.graph.start(0) + 7, ~0ull, scene.graph.start(2)};
  scene.host.control.words = reinterpret_cast<uint64_t>(words);
  scene.host.control.word_count = 4;
  scene.mark();
  CHECK(scene.live(0) && !scene.live(1) && scene.live(2));
}

CASE(registers_that_are_left_over_are_no_roots) {
  Scene scene(5);
  std::vector<uint64_t> words;
  for (std::size_t block = 0; block < 5; ++block) words.push_back(scene.graph.start(block));
  scene.threads.resize(3);
  scene.threads[0].scratch_start = 1;
  scene.threads[0].scratch_end = 2;
  scene.threads[2].scratch_start = 3;
  scene.threads[2].scratch_end = 4;
  scene.host.control.words = reinterpret_cast<uint64_t>(words.data());
  scene.host.control.word_count = words.size();
  scene.host.control.threads = reinterpret_cast<uint64_t>(scene.threads.data());
  scene.host.control.thread_count = scene.threads.size();
  scene.mark();
  for (std::size_t block = 0; block < 5; ++block) CHECK_EQ(scene.live(block), block % 2 == 0);
  std::vector<std::pair<uint64_t, uint64_t>> left_over;
  sweeper::Roots::each_scratch_word(
      [&](uint64_t index, uint64_t value) { left_over.emplace_back(index, value); });
  CHECK((left_over == std::vector<std::pair<uint64_t, uint64_t>>{{1, words[1]}, {3, words[3]}}));
}

CASE(only_aligned_words_count) {
  Scene scene(2);
  uint64_t data = scene.map(1, kReadWrite);
  scene.point(data + 4, 0);
  scene.point(data + kPage - 8, 1);
  scene.mark();
  CHECK(!scene.live(0) && scene.live(1));
}

CASE(every_byte_counts_in_generated_code) {
  Scene scene(4);
  constexpr uint32_t kReadExecute = wire::kRead | wire::kExecute;
  scene.point(scene.map(1, kReadExecute) + 3, 0);
  scene.point(scene.map(1, kReadWrite | wire::kExecute) + kPage - 9, 1);
  scene.point(scene.map(1, kReadExecute, abi::kFileBacked, 1) + 3, 2);
  scene.point(scene.map(1, kReadWrite | wire::kExecute, abi::kMainStack) + 3, 3);
  scene.mark();
  CHECK(scene.live(0) && scene.live(1) && !scene.live(2) && !scene.live(3));
}

CASE(dead_part_of_the_main_stack) {
  Scene scene(4);
  uint64_t stack = scene.map(4, kReadWrite, abi::kMainStack);
  uint64_t sp = stack + 2 * kPage + 8;
  scene.threads.push_back({0, sp, 0});
  scene.point(sp - 128 - 8, 0);
  scene.point(sp - 128, 1);  // the red zone is alive
  scene.point(sp, 2);
  scene.point(stack + 4 * kPage - 8, 3);
  scene.mark();
  CHECK(!scene.live(0) && scene.live(1) && scene.live(2) && scene.live(3));
}

CASE(dead_part_of_a_thread_stack) {
  Scene scene(4);
  uint64_t stack = scene.map(1, 0);
  scene.next -= kPage;
  scene.map(8, kReadWrite);
  uint64_t end = stack + 9 * kPage, descriptor = end - 0x940, sp = stack + 5 * kPage;
  scene.describe_thread(descriptor, stack, 9 * kPage);
  scene.threads.push_back({0, sp, descriptor});
  scene.point(stack + kPage, 0);
  scene.point(sp - 136, 1);
  scene.point(sp, 2);
  scene.point(end - 8, 3);
  scene.mark();
  CHECK(!scene.live(0) && !scene.live(1) && scene.live(2) && scene.live(3));
}

uint64_t mangled(uint64_t address, uint64_t secret) {
  uint64_t hidden = address ^ secret;
  return hidden << 17 | hidden >> 47;
}

// The room for a mask in a buffer of setjmp() counts only if the mask was saved. The library's own
// buffers end before it.
CASE(masks_in_jump_buffers) {
  constexpr uint64_t kSecret = 0x1234'5678'9abc'def1;
  Scene scene(6);
  uint64_t code = scene.map(1, wire::kRead | wire::kExecute, abi::kFileBacked, 1);
  uint64_t stack = scene.map(8, kReadWrite), descriptor = stack + 7 * kPage;
  scene.describe_thread(descriptor, stack, 8 * kPage);
  scene.graph.memory.put(descriptor + arch::kPointerGuard, kSecret);
  uint64_t next = stack + 3 * kPage;
  auto add = [&](uint64_t target, uint64_t mask_saved, std::size_t block) {
    uint64_t buffer = next;
    next += 2 * arch::kJumpBytes;
    scene.graph.memory.put(buffer + arch::kJumpStackPointer, mangled(stack + 2 * kPage, kSecret));
    scene.graph.memory.put(buffer + arch::kJumpProgramCounter, mangled(target, kSecret));
    scene.graph.memory.put(buffer + arch::kJumpMaskFlag, mask_saved);
    scene.point(buffer + arch::kJumpBytes - 8, block);
    return buffer;
  };
  uint64_t without = add(code, 0, 0);
  add(code, 1, 1);
  add(scene.map(1, kReadWrite), 0, 2);  // no code, so no buffer
  scene.point(without + arch::kJumpBytes, 3);
  uint64_t first = add(code, 0, 4), last = add(code, 0, 5);
  scene.graph.memory.put(descriptor + 0x300, last);
  scene.graph.memory.put(last + arch::kJumpMask, first);
  scene.threads.push_back({0, stack + 2 * kPage, descriptor});
  scene.mark();
  for (std::size_t i = 0; i < 6; ++i) CHECK_EQ(scene.live(i), i != 0);
}

// On a signal stack or a coroutine's stack: the frames of its own stack are still active.
CASE(the_stack_of_a_thread_that_runs_elsewhere_stays_whole) {
  Scene scene(4);
  uint64_t stack = scene.map(8, kReadWrite), elsewhere = scene.map(4, kReadWrite);
  uint64_t end = stack + 8 * kPage, descriptor = end - 0x940;
  scene.describe_thread(descriptor, stack, 8 * kPage);
  scene.threads.push_back({0, elsewhere + 2 * kPage, descriptor});
  scene.point(stack, 0);
  scene.point(end - 8, 1);
  scene.point(elsewhere, 2);
  scene.point(elsewhere + 4 * kPage - 8, 3);
  scene.mark();
  for (std::size_t block = 0; block < 4; ++block) CHECK(scene.live(block));
}

// On the stack of a finished thread, only its descriptor is live. Such stacks are adjacent.
CASE(stacks_of_ended_threads) {
  Scene scene(6);
  uint64_t stacks = scene.map(24, kReadWrite);
  std::size_t block = 0;
  for (uint64_t stack = stacks; stack < stacks + 24 * kPage; stack += 8 * kPage, block += 2) {
    uint64_t descriptor = stack + 8 * kPage - 0x940;
    scene.describe_thread(descriptor, stack, 8 * kPage);
    scene.point(descriptor - 8, block);
    scene.point(descriptor + 0x600, block + 1);
  }
  // The middle one is running, on this stack.
  uint64_t sp = stacks + 10 * kPage;
  scene.threads.push_back({0, sp, stacks + 16 * kPage - 0x940});
  scene.mark();
  bool expected[] = {false, true, true, true, false, true};
  for (std::size_t i = 0; i < 6; ++i) CHECK_EQ(scene.live(i), expected[i]);
}

// Of a joined or detached one, only the vector of thread-local storage is reused.
CASE(descriptors_of_ended_threads) {
  enum { kUnjoined, kJoined, kDetached };
  for (int how : {kUnjoined, kJoined, kDetached}) {
    Scene scene(4);
    uint64_t stack = scene.map(8, kReadWrite), descriptor = stack + 8 * kPage - 0x940;
    scene.describe_thread(descriptor, stack, 8 * kPage);
    if (how == kJoined) scene.graph.memory.put(descriptor + 0x2d0, 0xffffffffu);
    if (how == kDetached) scene.graph.memory.put(descriptor + 0x628, descriptor);
    scene.point(descriptor + 8, 0);
    scene.point(descriptor + 0x630, 1);
    scene.point(descriptor + 0x930, 2);
    scene.point(descriptor - 8, 3);
    scene.mark();
    CHECK(scene.live(0) && !scene.live(3));
    CHECK_EQ(scene.live(1), how == kUnjoined);
    CHECK_EQ(scene.live(2), how == kUnjoined);
  }
}

// A main stack of 16 pages, in which an array from page 8 to page 12 serves as a stack of its own.
struct Nested : Scene {
  Nested() : Scene(3), stack(map(16, kReadWrite, abi::kMainStack)) {
    code = map(1, wire::kRead | wire::kExecute, abi::kFileBacked, 1);
    threads.push_back({0, stack + 10 * kPage, 0});
    point(interrupted - 136, 0);  // below the red zone
    point(interrupted, 1);
    point(stack + 10 * kPage, 2);
  }

  void save_context(uint64_t at, uint64_t pointer) {
    graph.memory.put(at + 160, pointer);
    graph.memory.put(at + 168, code);
    graph.memory.put(at + 224, at + 424);
  }
  bool keeps_interrupted() {
    mark();
    CHECK(!live(0) && live(2));
    return live(1);
  }

  uint64_t stack, code, interrupted = stack + 3 * kPage;
  uint64_t inner = stack + 8 * kPage, inner_end = stack + 12 * kPage;
};

CASE(a_handler_on_an_array_of_the_stack) {
  for (bool right : {true, false}) {
    Nested scene;
    uint64_t frame = scene.inner_end - 0x400;
    scene.save_context(frame, scene.interrupted);
    scene.graph.memory.put(frame + 224, 0);
    scene.graph.memory.put(frame + 16, right ? scene.inner : scene.inner_end);
    scene.graph.memory.put(frame + 32, 4 * kPage);
    CHECK_EQ(scene.keeps_interrupted(), right);
  }
}

CASE(a_coroutine_on_an_array_of_the_stack) {
  for (bool right : {true, false}) {
    Nested scene;
    uint64_t contexts = scene.map(1, kReadWrite), outer = contexts + 0x400;
    scene.save_context(contexts, scene.stack + 11 * kPage);  // of another one, which is linked
    scene.save_context(outer, scene.interrupted);
    scene.graph.memory.put(contexts + 8, right ? outer : 0);
    scene.graph.memory.put(scene.inner_end - 8, contexts);
    CHECK_EQ(scene.keeps_interrupted(), right);
  }
}

CASE(a_thread_without_a_descriptor) {
  Scene scene(2);
  uint64_t stack = scene.map(4, kReadWrite);
  scene.threads.push_back({0, stack + 2 * kPage, 0});
  scene.threads.push_back({0, 0x1000, 0x1000});                             // nothing there
  scene.threads.push_back({0, stack + 3 * kPage, stack + 4 * kPage - 64});  // too small for one
  scene.point(stack, 0);
  scene.point(stack + 4 * kPage - 8, 1);
  scene.mark();
  CHECK(scene.live(0) && scene.live(1));
}

CASE(too_many_exclusions_are_refused) {
  Scene scene(1);
  try {
    scene.mark([](sweeper::Roots& roots) {
      for (std::size_t i = 0; i <= sweeper::kMaxExclusions; ++i) roots.exclude(i, i + 1);
    });
    CHECK(false);
  } catch (const Refused& refused) {
    CHECK(refused.refusal == abi::Refusal::kNoMemory);
  }
}

// Each word of the roots points to a block of its own.
struct Words {
  explicit Words(Scene& scene) {
    for (uint64_t pages : {2, 1, 3}) {
      uint64_t start = scene.map(pages, kReadWrite);
      if (pages == 1) scene.next -= kPage;  // the last two are adjacent
      for (uint64_t at = start; at < start + pages * kPage; at += 8) {
        scene.point(at, places.size());
        places.push_back(at);
      }
    }
  }
  std::vector<uint64_t> places;
};

CASE(random_exclusions_cut_out_what_they_cover) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    context = "seed " + std::to_string(seed);
    std::mt19937_64 random(seed);
    Scene scene(6 * kPage / 8);
    Words words(scene);
    std::vector<heaps::Range> cut;
    uint64_t span = scene.next - kRoots + 2 * kPage;
    for (std::size_t n = random() % 12; n > 0; --n) {
      uint64_t start = kRoots - kPage + random() % span;
      uint64_t length = random() % (random() % 2 == 0 ? 64 : 2 * kPage);
      // Walkers exclude whole granules; stacks end at any word.
      if (random() % 2 == 0) start &= ~7ull, length &= ~7ull;
      if (length != 0) cut.push_back({start, start + length});
    }
    scene.mark([&](sweeper::Roots& roots) {
      for (const heaps::Range& range : cut) roots.exclude(range.start, range.end);
    });
    for (std::size_t i = 0; i < words.places.size(); ++i) {
      bool excluded = false;
      for (const heaps::Range& range : cut)
        excluded = excluded || (words.places[i] < range.end && words.places[i] + 8 > range.start);
      CHECK_EQ(scene.live(i), !excluded);
    }
  }
}

}  // namespace
}  // namespace reachscan::tests
