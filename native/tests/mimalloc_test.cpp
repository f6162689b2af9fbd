// The walker for mimalloc on images: intact, damaged and hostile.
#include <string>

#include "heaps/mimalloc/walker.hpp"
#include "mimalloc_image.hpp"
#include "walk.hpp"

namespace reachscan::tests {
namespace {

using namespace heaps::mimalloc;

template <typename Image>
Found walk(const Image& image) {
  return walk_with<Walker>(image.memory.space());
}

template <typename Image>
void check_all_are_found(const Image& image) {
  Found found = walk(image);
  CHECK(found.present);
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK_EQ(found.blocks.size(), image.blocks.size());
  CHECK(found.blocks == image.blocks);
}

// A bit of everything, with single words first.
struct Scene {
  explicit Scene(const Layout& layout) : image(layout) {
    words = image.page(8, 1, 100, {{0, 99}, {1, 2}, {50}, {51}});
    full = image.page(320, 1, 200, {{}, {}, {}, {7, 199}});
    large = image.page(200 << 10, 4, 1);
    image.page(1024, 1, 10, {{4}, {}, {}, {}});
  }

  Mimalloc image;
  uint64_t words = 0, full = 0, large = 0;
};

CASE(all_blocks_are_found_but_those_in_lists_of_free_ones) {
  for (const Layout& layout : kLayouts) check_all_are_found(Scene(layout).image);
}

CASE(without_its_signature_there_is_no_mimalloc) {
  Scene scene(kFrom219);
  scene.image.memory.put(Mimalloc::kMainHeap + kFrom219.heap_cookie, 1);
  CHECK(!walk(scene.image).present);
}

// It was released; its slices may describe what is there now.
CASE(a_segment_without_pages_has_no_blocks) {
  Scene scene(kFrom219);
  scene.image.memory.put(Mimalloc::kSegment + kFrom219.segment_used, 0);
  Found found = walk(scene.image);
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK(found.blocks.empty());
}

// Then a list leads to where no block is known.
CASE(a_segment_of_release_1_is_proved_by_its_sizes) {
  for (const Layout& layout : {kFrom17, kFrom179, kFrom181, kFrom184, kFrom189}) {
    Scene scene(layout);
    scene.image.memory.put(Mimalloc::kSegment + layout.page_shift, 17);
    CHECK_EQ(walk(scene.image).reason,
             std::string("a list of blocks that other threads freed leads elsewhere"));
  }
}

void check_refused(void (*damage)(Scene&, const Layout&), const std::string& reason,
                   const std::vector<Layout>& layouts = {kFrom20, kFrom203, kFrom209, kFrom219,
                                                         kFrom17, kFrom189}) {
  for (const Layout& layout : layouts) {
    Scene scene(layout);
    damage(scene, layout);
    CHECK_EQ(walk(scene.image).reason, reason);
  }
}

CASE(what_contradicts_itself_is_refused) {
  check_refused(
      [](Scene& s, const Layout& layout) {
        s.image.memory.store<uint16_t>(s.full + layout.used, 9);
      },
      "a page has another number of free blocks than it says");
  check_refused(
      [](Scene& s, const Layout&) {
        s.image.memory.put(s.words + kFreeField, heaps::word(s.words + kFreeField) + 4);
      },
      "a list of free blocks leads elsewhere");
  check_refused([](Scene& s, const Layout&) { s.image.memory.store<uint32_t>(s.large, 1 << 20); },
                "the slices of a segment do not follow each other", {kFrom20, kFrom203, kFrom219});
  check_refused(
      [](Scene& s, const Layout& layout) {
        s.image.memory.put(Mimalloc::kMainHeap + layout.heap_delayed, s.words);
      },
      "a list of blocks that other threads freed leads elsewhere");
  check_refused(
      [](Scene& s, const Layout&) { s.image.memory.store<uint16_t>(s.full + kCapacityField, 999); },
      "a page has more blocks than room");
}

// Damages each word of the structures in several ways: the walk must end with some answer.
CASE(damage_anywhere_ends) {
  for (const Layout& layout : {kFrom20, kFrom203, kFrom219, kFrom17, kFrom189}) {
    Scene scene(layout);
    std::vector<uint64_t> places{Mimalloc::kMainHeap + layout.heap_delayed};
    uint64_t end = Mimalloc::kSegment + layout.slices + 10 * layout.page_bytes;
    for (uint64_t at = Mimalloc::kSegment + layout.cookie; at < end; at += 8) places.push_back(at);
    for (uint64_t place : places) {
      uint64_t healthy = heaps::word(place);
      for (uint64_t value :
           {uint64_t{0}, ~uint64_t{0}, healthy ^ 1, healthy + 8, healthy ^ uint64_t{1} << 40}) {
        scene.image.memory.put(place, value);
        CHECK(!walk(scene.image).reason.empty());
      }
      scene.image.memory.put(place, healthy);
    }
    CHECK(walk(scene.image).blocks == scene.image.blocks);
  }
}

struct MapScene {
  explicit MapScene(const PageLayout& layout) : image(layout) {
    words = image.page(8, 1, 100, {{0, 99}, {1, 2}, {50}});
    full = image.page(320, 1, 200, {{}, {}, {7, 199}});
    large = image.page(200 << 10, 4, 1);
    image.page(1024, 1, 10, {{4}, {}, {}});
    unused = image.page(64, 1, 3, {{0, 1, 2}, {}, {}});
  }

  Mimalloc3 image;
  uint64_t words = 0, full = 0, large = 0, unused = 0;
};

CASE(release_3_all_blocks_are_found_but_those_in_lists_of_free_ones) {
  for (const PageLayout& layout : {kFrom30, kFrom34}) check_all_are_found(MapScene(layout).image);
}

CASE(release_3_without_the_table_behind_its_map_is_not_found) {
  MapScene scene(kFrom34);
  scene.image.memory.put(Mimalloc3::kMap, Mimalloc3::kTable);
  CHECK(!walk(scene.image).present);
}

// As in 3.0.1: entries of released pages, where other pages are and in free memory.
CASE(release_3_pages_that_were_given_back_are_left_out) {
  MapScene scene(kFrom30);
  uint64_t gone = scene.large + 2 * kMapSlice;
  uint64_t behind = Mimalloc3::entry_of(scene.unused + 2 * kMapSlice);
  scene.image.memory.put(gone + 16, 0x0003000300030003);
  scene.image.memory.put(behind, gone);
  uint64_t unlisted = scene.unused + 3 * kMapSlice;
  scene.image.memory.put(behind + 8, unlisted);
  scene.image.memory.put(unlisted + 16, 0x0003000300030003);
  scene.image.list_pages({scene.words, scene.full, scene.large, scene.large + 4 * kMapSlice});
  Found found = walk(scene.image);
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK(found.blocks == scene.image.blocks);
}

uint64_t bytes_claimed(const Found& found) {
  uint64_t bytes = 0;
  for (const auto& [start, end] : found.regions) bytes += end - start;
  return bytes;
}

CASE(release_3_memory_that_was_never_written_is_not_claimed) {
  constexpr uint64_t kUnwritten = 8 << 20;
  MapScene scene(kFrom34);
  uint64_t all = bytes_claimed(walk(scene.image));
  scene.image.memory.leave_out(Mimalloc3::kArena + Mimalloc3::kArenaBytes - kUnwritten, kUnwritten);
  Found found = walk(scene.image);
  CHECK(found.blocks == scene.image.blocks);
  CHECK_EQ(bytes_claimed(found), all - kUnwritten);
}

void check_map_refused(void (*damage)(MapScene&), const std::string& reason) {
  for (const PageLayout& layout : {kFrom30, kFrom34}) {
    MapScene scene(layout);
    damage(scene);
    CHECK_EQ(walk(scene.image).reason, reason);
  }
}

CASE(release_3_what_contradicts_itself_is_refused) {
  check_map_refused([](MapScene& s) { s.image.memory.store<uint16_t>(s.full + 16, 9); },
                    "a page has another number of free blocks than it says");
  check_map_refused(
      [](MapScene& s) { s.image.memory.put(s.words + 8, heaps::word(s.words + 8) + 4); },
      "a list of free blocks leads elsewhere");
  check_map_refused([](MapScene& s) { s.image.memory.put(s.full + 40, 9); },
                    "a page is not where the allocator looks for it");
  check_map_refused([](MapScene& s) { s.image.memory.put(Mimalloc3::kArena + 8, 7 * kMapSlice); },
                    "a page is not where the allocator looks for it");
}

CASE(release_3_damage_anywhere_ends) {
  for (const PageLayout& layout : {kFrom30, kFrom34}) {
    MapScene scene(layout);
    std::vector<uint64_t> places{Mimalloc3::kVariable, Mimalloc3::kMap, Mimalloc3::kArena,
                                 Mimalloc3::kArena + 8, Mimalloc3::kArena + 16};
    for (uint64_t page : {scene.words, scene.large})
      for (uint64_t at = page; at < page + kPageBytes; at += 8) places.push_back(at);
    for (uint64_t place : places) {
      uint64_t healthy = heaps::word(place);
      for (uint64_t value :
           {uint64_t{0}, ~uint64_t{0}, healthy ^ 1, healthy + 8, healthy ^ uint64_t{1} << 40}) {
        scene.image.memory.put(place, value);
        CHECK(!walk(scene.image).reason.empty());
      }
      scene.image.memory.put(place, healthy);
    }
    CHECK(walk(scene.image).blocks == scene.image.blocks);
  }
}

}  // namespace
}  // namespace reachscan::tests
