// The walker for jemalloc on images: intact, damaged and hostile.
#include <string>

#include "heaps/jemalloc/walker.hpp"
#include "jemalloc_image.hpp"
#include "walk.hpp"

namespace reachscan::tests {
namespace {

using heaps::kPage;
using namespace heaps::jemalloc;

Found walk(const Jemalloc& image, const std::vector<abi::Thread>& threads) {
  return walk_with<Walker>(image.memory.space(), {threads.data(), threads.size(), {}});
}

// A bit of everything. The first slab is of single words.
struct Scene {
  explicit Scene(const Tree& tree) : image(tree) {
    words = image.slab(0, 1, {1, 2, 64, 511});
    image.unused(3);
    slab = image.slab(5, 5, {0, 255});
    large = image.large(small_classes(tree, Quantum::k16) + 2, 0x340);
    image.slab(4, 1, {});
    uint64_t start = heaps::word(words + kAddressField);
    threads.push_back(image.thread(0, {start, start + 24, start + 8 * 510}));
  }

  Jemalloc image;
  uint64_t words = 0, slab = 0, large = 0;
  std::vector<abi::Thread> threads;
};

CASE(all_blocks_are_found_but_those_in_caches) {
  for (const Tree& tree : {kTreeOf48, kTreeOf57, kTreeOf16KiB, kTreeOf64KiB}) {
    Scene scene(tree);
    Found found = walk(scene.image, scene.threads);
    CHECK(found.present);
    CHECK_EQ(found.reason, std::string("fine"));
    CHECK(found.blocks == scene.image.blocks);
  }
}

// Until 5.3.0, a block holds the stacks of a thread's cache: it is the allocator's own.
CASE(the_block_that_holds_the_stacks_of_a_cache_is_not_a_block_of_the_program) {
  for (const Tree& tree : {kTreeOf48, kTreeOf57}) {
    Jemalloc image(tree);
    uint64_t start = heaps::word(image.slab(0, 1, {1}) + kAddressField);
    uint64_t stacks = heaps::word(image.large(38, 0x340) + kAddressField);
    Found found = walk(image, {image.thread(0, {start, start + 24}, stacks)});
    CHECK_EQ(found.reason, std::string("fine"));
    CHECK(found.blocks == image.blocks);
  }
}

// The search for the first thread's cache comes upon the second one's, behind a smaller library.
CASE(a_library_that_was_loaded_later_has_its_caches_elsewhere) {
  Jemalloc image(kTreeOf48);
  uint64_t start = heaps::word(image.slab(0, 1, {}) + kAddressField);
  std::vector<abi::Thread> threads{image.late_thread(0, 0, {start, start + 24}),
                                   image.late_thread(1, 0, {start + 48})};
  Found found = walk(image, threads);
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK_EQ(found.warning, std::string());
  CHECK(found.blocks == image.blocks);
}

CASE(caches_are_found_without_statistics) {
  Jemalloc image(kTreeOf48);
  image.has_statistics = false;
  uint64_t start = heaps::word(image.slab(0, 1, {}) + kAddressField);
  Found found = walk(image, {image.thread(0, {start, start + 24})});
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK_EQ(found.warning, std::string());
  CHECK(found.blocks == image.blocks);
}

CASE(a_warning_says_that_no_cache_was_found) {
  Jemalloc image(kTreeOf48);
  CHECK_EQ(walk(image, {}).warning, std::string());
  image.slab(4, 1, {});
  CHECK_EQ(walk(image, {}).warning, std::string("incomplete-free-blocks"));
}

CASE(leaves_without_blocks_may_come_first) {
  Scene scene(kTreeOf57);
  scene.image.leaf_without_blocks();
  Found found = walk(scene.image, scene.threads);
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK(found.blocks == scene.image.blocks);
}

// The option slab_sizes sets how many pages a slab has.
CASE(slots_need_not_fill_their_slab) {
  Scene scene(kTreeOf48);
  scene.image.slab(5, 1, {0});
  scene.image.slab(4, 1, {});
  Found found = walk(scene.image, scene.threads);
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK(found.blocks == scene.image.blocks);
}

// 5.3.1: with their extra page, the first ones are as long as blocks of their class.
CASE(extents_that_do_not_tell_whether_they_are_padded_follow_one_that_does) {
  Jemalloc image(kTreeOf48);
  image.slab(4, 1, {});
  image.large(44, 0, 1);
  image.large(46, 0, 1);
  image.large(45, 0x680, 2);
  Found found = walk(image, {});
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK(found.blocks == image.blocks);
}

// As a database does for the most that its buffers may ever need.
CASE(reserved_terabytes_do_not_hide_it) {
  constexpr uint64_t kReserved = kWorld + (1ull << 40), kBytes = 8ull << 40;
  for (uint32_t perms : {0u, kReadWrite}) {
    Scene scene(kTreeOf48);
    scene.image.memory.describe(kReserved, kBytes, perms, abi::kAbsent);
    scene.image.memory.put(Jemalloc::kData, kReserved + kBytes - kPage);
    CHECK(walk(scene.image, scene.threads).blocks == scene.image.blocks);
  }
}

CASE(without_its_metadata_there_is_no_jemalloc) {
  Scene scene(kTreeOf48);
  scene.image.memory.put(Jemalloc::kMetadata, 3 << 20);
  CHECK(!walk(scene.image, scene.threads).present);
}

void check_refused(void (*damage)(Scene&), const std::string& reason) {
  for (const Tree& tree : {kTreeOf48, kTreeOf57, kTreeOf64KiB}) {
    Scene scene(tree);
    damage(scene);
    CHECK_EQ(walk(scene.image, scene.threads).reason, reason);
  }
}

CASE(what_contradicts_itself_is_refused) {
  check_refused(
      [](Scene& s) {
        s.image.memory.put(s.slab + kSlotsField, heaps::word(s.slab + kSlotsField) | 2);
      },
      "a slab has another number of free slots than it says");
  check_refused([](Scene& s) { s.image.memory.put(s.slab + kSlotsField + 24, ~0ull); },
                "a slab has another number of free slots than it says");
  check_refused([](Scene& s) { s.image.memory.put(s.large + kSizeField, uint64_t{1} << 40); },
                "an extent is not where the allocator looks for it");
  check_refused(
      [](Scene& s) {
        s.image.memory.put(s.slab + kAddressField,
                           heaps::word(s.slab + kAddressField) + (64 << 10));
      },
      "an extent is not where the allocator looks for it");
  check_refused(
      [](Scene& s) {
        s.image.memory.put(s.slab, heaps::word(s.slab) ^ 1ull << kFrom53.class_shift);
      },
      "an extent holds other blocks than the allocator says");
}

CASE(a_cache_with_what_is_no_block_is_refused) {
  Scene scene(kTreeOf48);
  uint64_t start = heaps::word(scene.words + kAddressField);
  scene.threads[0] = scene.image.thread(0, {start + 8});  // free already
  CHECK_EQ(walk(scene.image, scene.threads).reason,
           std::string("a thread's cache of free blocks is not consistent"));
}

// Of the words before the cache, some are the last addresses there are.
CASE(the_end_of_all_addresses_is_no_cache) {
  Scene scene(kTreeOf48);
  uint64_t cache = scene.threads[0].thread_pointer - 0xa00;
  for (uint64_t before = 8; before <= 128; before += 8)
    scene.image.memory.put(cache - before, -before);
  CHECK(walk(scene.image, scene.threads).blocks == scene.image.blocks);
}

// Damages each word of the structures in several ways: the walk must end with some answer.
CASE(damage_anywhere_ends) {
  for (const Tree& tree : {kTreeOf48, kTreeOf57}) {
    Scene scene(tree);
    std::vector<uint64_t> places{Jemalloc::kMetadata, Jemalloc::kMetadata + 8,
                                 Jemalloc::kMetadata + 24, Jemalloc::kMetadata + 32};
    for (uint64_t extent : {scene.words, scene.slab, scene.large})
      for (uint64_t at = extent; at < extent + tree.extent_bytes(); at += 8) places.push_back(at);
    for (uint64_t page = 0; page < 24; ++page)
      places.push_back(tree.entry_at(scene.image.leaf, Jemalloc::kHeap + page * tree.page()));
    uint64_t cache = scene.threads[0].thread_pointer - 0xa00;
    for (uint64_t at = cache; at < cache + 0x200; at += 8) places.push_back(at);
    for (uint64_t place : places) {
      uint64_t healthy = heaps::word(place);
      for (uint64_t value : {uint64_t{0}, ~uint64_t{0}, healthy ^ 1, healthy + 8, healthy + kPage,
                             healthy ^ uint64_t{1} << 40, place}) {
        scene.image.memory.put(place, value);
        CHECK(!walk(scene.image, scene.threads).reason.empty());
      }
      scene.image.memory.put(place, healthy);
    }
    CHECK(walk(scene.image, scene.threads).blocks == scene.image.blocks);
  }
}

}  // namespace
}  // namespace reachscan::tests
