// The walker for tcmalloc on images: intact, damaged and hostile.
#include <string>

#include "heaps/tcmalloc/walker.hpp"
#include "tcmalloc_image.hpp"
#include "walk.hpp"

namespace reachscan::tests {
namespace {

using heaps::kPage;
using namespace heaps::tcmalloc;

constexpr uint64_t kLinks[] = {kListsBytes + 0x20, kListsBytes + 0x30};  // since 2.16, and before

Found walk(const Tcmalloc& image) { return walk_with<Walker>(image.memory.space()); }

uint64_t start_of(uint64_t span) { return address_of(heaps::word(span)); }

// A bit of everything. The first span is of single words.
struct Scene {
  explicit Scene(uint64_t links = kLinks[0], bool many_threads = true,
                 uint64_t stride = Central::kPaddedBytes)
      : image(links, stride) {
    words = image.small(1, 1, {1, 2, 64, 1023});
    image.unused(3);
    fours = image.small(4, 1, {});
    large = image.large(5);
    image.small(8, 33, {});
    uint64_t word = start_of(words), four = start_of(fours);
    image.chain(1, {word + 40, word + 800, word + 48});
    image.chain(1, {word + 56});
    first = image.cache(4, {four, four + 48 * 3});
    if (many_threads) second = image.cache(1, {word, word + 24});
  }

  Tcmalloc image;
  uint64_t words = 0, fours = 0, large = 0, first = 0, second = 0;
};

CASE(all_blocks_are_found_but_those_in_caches) {
  for (uint64_t links : kLinks) {
    for (bool many_threads : {false, true}) {
      Scene scene(links, many_threads);
      Found found = walk(scene.image);
      CHECK(found.present);
      CHECK_EQ(found.reason, std::string("fine"));
      CHECK(found.blocks == scene.image.blocks);
    }
  }
}

CASE(central_lists_need_not_be_padded) {
  Scene scene(kLinks[0], true, Central::kBytes);
  Found found = walk(scene.image);
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK(found.blocks == scene.image.blocks);
}

CASE(the_cache_of_a_thread_that_has_exited_does_not_hide_the_only_one) {
  for (uint64_t links : kLinks) {
    Scene scene(links, false);
    scene.image.exited_cache();
    CHECK(walk(scene.image).blocks == scene.image.blocks);
  }
}

CASE(a_sampled_block_is_as_large_as_was_asked_for) {
  constexpr uint64_t kStack = Tcmalloc::kMetadata + (3 << 20);
  Scene scene;
  scene.image.memory.put(kStack, 5000);
  scene.image.memory.put(scene.large + 32, kStack);
  scene.image.memory.store<uint32_t>(scene.large + 40, 1u << 26);
  scene.image.blocks[start_of(scene.large)] = 8192;
  CHECK(walk(scene.image).blocks == scene.image.blocks);
  scene.image.memory.put(kStack, 50000);
  CHECK_EQ(walk(scene.image).reason, std::string("a sampled block is larger than its span"));
}

CASE(a_variable_that_points_to_a_cache_in_the_middle_leads_to_all) {
  Scene scene;
  scene.image.memory.put(Tcmalloc::kFirstCache, scene.first);
  CHECK(walk(scene.image).blocks == scene.image.blocks);
}

CASE(the_object_that_the_allocator_loses_is_no_block) {
  Scene scene;
  uint64_t block = start_of(scene.words) + 72;
  scene.image.object(block, "15MallocExtensions");
  CHECK(walk(scene.image).blocks == scene.image.blocks);
  scene.image.object(block, "15MallocExtension");
  scene.image.blocks.erase(block);
  CHECK(walk(scene.image).blocks == scene.image.blocks);
}

CASE(without_central_lists_classes_or_spans_there_is_no_tcmalloc) {
  for (uint64_t damaged :
       {Tcmalloc::kCentral + Central::kFullHeader + kNextField, Tcmalloc::kClasses + 4,
        Tcmalloc::kRoot + 8 * (Tcmalloc::kHeap >> kPageBits >> kLeafBits)}) {
    Scene scene;
    scene.image.memory.put(damaged, 0);
    CHECK(!walk(scene.image).present);
  }
}

void check_refused(void (*damage)(Scene&), const std::string& reason) {
  Scene scene;
  damage(scene);
  CHECK_EQ(walk(scene.image).reason, reason);
}

CASE(spans_that_contradict_themselves_are_refused) {
  check_refused([](Scene& s) { s.image.memory.put(s.large + 8, uint64_t{1} << 30); },
                "a span is not where the allocator looks for it");
  check_refused([](Scene& s) { s.image.memory.put(s.large, heaps::word(s.large) + 1); },
                "a span is not where the allocator looks for it");
  check_refused([](Scene& s) { s.image.memory.store<uint32_t>(s.large + 40, 3u << 24); },
                "a span has an unknown use");
  check_refused([](Scene& s) { s.image.memory.store<uint32_t>(s.large + 40, 100u << 16); },
                "a span is of an unknown class");
  check_refused([](Scene& s) { s.image.memory.store<uint32_t>(s.fours + 40, 171 | 4u << 16); },
                "a span has handed out more blocks than it has");
}

CASE(blocks_with_headers_of_the_debug_form_are_refused) {
  for (uint32_t kind : {0xefcdab90u, 0xfebadc81u, 0xbceadf72u}) {
    Tcmalloc image(kLinks[0]);
    uint64_t block = start_of(image.small(6, 1, {0})) + Tcmalloc::size_of(6);
    uint64_t asked = Tcmalloc::size_of(6) - 51;
    image.memory.put(block, asked);
    image.memory.put(block + 16, 0xdeadbeef);
    image.memory.put(block + 24, ~uint64_t{0} << 32 | kind);
    image.memory.put(block + 32 + asked, asked);
    CHECK_EQ(walk(image).reason, std::string("fine"));
    image.memory.put(block + 40 + asked, 0xdeadbeef);
    CHECK_EQ(
        walk(image).reason,
        std::string(
            "the blocks of tcmalloc have the headers of its debug form, which is not understood"));
  }
}

CASE(lists_that_are_not_what_is_counted_are_refused) {
  check_refused([](Scene& s) { s.image.memory.store<uint32_t>(s.words + 40, 1021 | 1u << 16); },
                "a span has more free blocks than it counts");
  check_refused([](Scene& s) { s.image.memory.store<uint32_t>(s.words + 40, 1019 | 1u << 16); },
                "a span's list of free blocks is not consistent");
  check_refused(
      [](Scene& s) {
        s.image.memory.store<uint32_t>(s.image.central(1).at + Central::kChainCount, 65);
      },
      "a central list of free blocks has more chains than it can have");
  check_refused([](Scene& s) { s.image.memory.put(start_of(s.words) + 800, 0); },
                "a chain of free blocks is not consistent");
  check_refused([](Scene& s) { s.image.memory.put(start_of(s.words), start_of(s.words)); },
                "a thread's cache is not consistent");
  check_refused([](Scene& s) { s.image.memory.put(start_of(s.words) + 24, 8); },
                "a thread's cache has more blocks than it counts");
}

// Damages each word of the structures in several ways: the walk must end with some answer.
CASE(damage_anywhere_ends) {
  Scene scene;
  std::vector<uint64_t> places;
  auto add = [&places](uint64_t from, uint64_t bytes) {
    for (uint64_t at = from; at < from + bytes; at += 8) places.push_back(at);
  };
  for (uint64_t span : {scene.words, scene.fours, scene.large}) add(span, kSpanBytes);
  for (uint64_t page = 0; page < 50; ++page)
    places.push_back(scene.image.leaf + 8 * (((Tcmalloc::kHeap >> kPageBits) + page) % kLeafSlots));
  for (unsigned number : {0, 1, 4}) add(scene.image.central(number).at, Central::kChains + 32);
  add(scene.image.central(1).at + Central::kChainCount, 8);
  for (uint64_t cache : {scene.first, scene.second}) {
    add(cache + kListBytes, kListBytes);
    add(cache + kListsBytes, kLinksAfterLists);
  }
  add(Tcmalloc::kClasses - 4, 48);
  for (uint64_t place : places) {
    uint64_t healthy = heaps::word(place);
    for (uint64_t value : {uint64_t{0}, ~uint64_t{0}, healthy ^ 1, healthy + 8, healthy + kPage,
                           healthy ^ uint64_t{1} << 40, place}) {
      scene.image.memory.put(place, value);
      CHECK(!walk(scene.image).reason.empty());
    }
    scene.image.memory.put(place, healthy);
  }
  CHECK(walk(scene.image).blocks == scene.image.blocks);
}

}  // namespace
}  // namespace reachscan::tests
