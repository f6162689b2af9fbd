// A whole process with everything that glibc's malloc can have, and what a scan must find.
#pragma once

#include "glibc_image.hpp"
#include "on_threads.hpp"

namespace reachscan::tests {

// The layout of the scene. A module's data is in low pages, so that distances are as in a process.
constexpr uint64_t kModule = kWorld;
constexpr uint64_t kMainArena = kModule + 0x140;
constexpr uint64_t kSbrkBase = kModule + 0xf00;  // the field in mp_
constexpr uint64_t kCode = kModule + (1 << 20);
constexpr uint64_t kConstants = kModule + (2 << 20);
constexpr uint64_t kBreak = kModule + (16 << 20);
constexpr uint64_t kHeapMax = 1 << 20;  // the smallest that glibc may have been built for
constexpr uint64_t kThreadHeaps = kModule + (1 << 30) + 3 * kHeapMax;
constexpr uint64_t kBlocks = kModule + (2ll << 30);
constexpr uint64_t kStacks = kModule + (3ll << 30);
constexpr uint32_t kLibrary = 7;  // the file number

struct Options {
  bool foreign_break = false;  // foreign code moved the break in the middle of the main heap
  bool thread_arena = false;   // an arena with a full heap and a current one
  bool mapped_blocks = false;  // one of each kind of alignment
  bool params = true;          // mp_ can be found
  bool cache = true;
};

class Scene {
 public:
  Scene(const Release& release, const Options& options);

  // Adds a thread whose thread-local storage points to `cache` (0: none).
  abi::Thread& add_thread(uint64_t cache);
  // Adds the blocks of a run to those that must be found.
  void expect(const Blocks& found) { blocks.insert(found.begin(), found.end()); }
  // Writes mp_ for `count` mapped blocks.
  void set_mapped(int32_t count, uint64_t bytes) {
    glibc.params(kSbrkBase, options.params ? kBreak : 0x1000, count, bytes);
  }

  const Release& release;
  Options options;
  Memory memory;
  Glibc glibc;
  std::vector<abi::Thread> threads;
  Blocks blocks;
  // Places that tests damage.
  uint64_t cache_block = 0;
  std::vector<uint64_t> cached, fast, leaks;
  uint64_t main_top = 0, thread_arena = 0, full_heap = 0, full_heap_end = 0;

 private:
  void add_module();
  void add_main_heap();
  void add_lists(Chunks& chunks);
  void add_foreign_break(Chunks& chunks, uint64_t end);
  void add_thread_arena();
  void add_mapped_blocks();
};

// The results of walking a scene.
struct Found {
  heaps::Verdict verdict;
  Blocks blocks;
  uint64_t total_blocks = 0, total_bytes = 0, mapped_found = 0, mapped_expected = 0;
  std::size_t instances = 0, arenas = 0, regions = 0;
  bool quiet = false;
  abi::QuiesceHint hint{};
};

Found walk(const Scene& scene, heaps::OnThreads on_threads = alone);
// Walks and compares with what the scene expects.
void check_found(const Scene& scene, heaps::OnThreads on_threads = alone);

}  // namespace reachscan::tests
