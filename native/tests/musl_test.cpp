// The walker for musl's mallocng on images: intact, damaged and hostile.
#include <string>

#include "heaps/musl/walker.hpp"
#include "musl_image.hpp"
#include "walk.hpp"

namespace reachscan::tests {
namespace {

using heaps::kPage;
using namespace heaps::musl;

Found walk(const Musl& image) { return walk_with<Walker>(image.memory.space(), {}, true); }

constexpr uint64_t kFarInto = 17 << 16;  // more units than 16 bits hold

// A bit of everything: adjacent blocks of one unit, one of no bytes, groups in slots of groups, in
// a module's page, and blocks that start late in their slots.
struct Scene {
  Scene() {
    smallest = image.mapped(0, 30, 1);
    for (uint32_t slot = 0; slot < 13; ++slot) image.block(smallest, slot, slot);
    outer = image.mapped(23, 2, 2);
    inner = image.nested(outer, 0, 15, 4);
    innermost = image.nested(inner, 1, 3, 7);
    image.block(inner, 2, 400, 64);
    moved = image.block(innermost, 0, 16, 32);
    image.block(innermost, 6, 60);
    donated = image.donated(Musl::kData + 3 * kPage, 15);
    image.block(donated, 0, 333);
    image.large(64, 64 * kPage - 24);
    image.large(300, 4096, kFarInto);
  }

  Musl image;
  uint64_t smallest = 0, outer = 0, inner = 0, innermost = 0, donated = 0, moved = 0;
};

CASE(all_blocks_are_found_with_their_sizes) {
  Scene scene;
  Found found = walk(scene.image);
  CHECK(found.present);
  CHECK_EQ(found.reason, std::string("fine"));
  CHECK(found.blocks == scene.image.blocks);
}

CASE(a_block_that_is_being_freed_is_free) {
  Scene scene;
  scene.image.memory.store(scene.moved - 3, kHeaderOfFreed);
  scene.image.memory.store(scene.moved - 2, uint16_t{0});
  scene.image.blocks.erase(scene.moved);
  CHECK(walk(scene.image).blocks == scene.image.blocks);
}

CASE(without_its_secret_there_is_no_musl) {
  Scene scene;
  scene.image.memory.put(Musl::kArea, 1);
  CHECK(!walk(scene.image).present);
}

void check_refused(void (*damage)(Scene&), const std::string& reason) {
  Scene scene;
  damage(scene);
  CHECK_EQ(walk(scene.image).reason, reason);
}

CASE(what_contradicts_itself_is_refused) {
  check_refused([](Scene& s) { s.image.memory.put(Musl::kHeap, s.outer); },
                "a group of slots is not where its descriptor says");
  check_refused([](Scene& s) { s.image.memory.put(s.inner + 16, Musl::kHeap + 48); },
                "a group of slots is not where its descriptor says");
  check_refused([](Scene& s) { s.image.memory.put(s.innermost + 16, 0); },
                "slots that hold groups are not as many as such groups");
  check_refused([](Scene& s) { s.image.memory.store(s.moved - 3, uint8_t{2}); },
                "a slot that is in use does not say how");
  for (uint32_t reserved : {4u, 29u}) {
    Scene scene;
    scene.image.memory.store(scene.moved + 24, reserved);
    CHECK_EQ(walk(scene.image).reason, std::string("the size of a block does not fit its slot"));
  }
  check_refused([](Scene& s) { s.image.memory.put(Musl::kArea + kNextAreaField, Musl::kArea); },
                "the allocator's memory overlaps that of something else");
  check_refused([](Scene& s) { s.image.memory.put(Musl::kArea + kNextAreaField, Musl::kHeap); },
                "a page of the allocator's descriptors is damaged");
}

// Damages each word of the structures in several ways: the walk must end with some answer.
CASE(damage_anywhere_ends) {
  Scene scene;
  std::vector<uint64_t> places;
  for (uint64_t at = Musl::kContext; at < Musl::kContext + 80; at += 8) places.push_back(at);
  for (uint64_t at = Musl::kArea; at < Musl::kArea + 360; at += 8) places.push_back(at);
  for (uint64_t meta : {scene.smallest, scene.outer, scene.inner, scene.innermost, scene.donated})
    places.push_back(heaps::word(meta + 16));
  for (auto [block, size] : scene.image.blocks) {
    places.push_back(block - 8);
    places.push_back((block + size) & ~7ull);
  }
  for (uint64_t place : places) {
    uint64_t healthy = heaps::word(place);
    for (uint64_t value : {uint64_t{0}, ~uint64_t{0}, healthy ^ 1, healthy + 16, healthy + kPage,
                           healthy ^ uint64_t{1} << 40, healthy ^ uint64_t{6} << 45, place}) {
      scene.image.memory.put(place, value);
      CHECK(!walk(scene.image).reason.empty());
    }
    scene.image.memory.put(place, healthy);
  }
  CHECK(walk(scene.image).blocks == scene.image.blocks);
}

}  // namespace
}  // namespace reachscan::tests
