// The walker for Scudo on images: intact, damaged and hostile.
#include <string>

#include "heaps/scudo/walker.hpp"
#include "scudo_image.hpp"
#include "walk.hpp"

namespace reachscan::tests {
namespace {

using heaps::kPage;
using namespace heaps::scudo;

Found walk(const Scudo& image) { return walk_with<Walker>(image.memory.space()); }

// A bit of everything: blocks of all lengths, aligned ones, free ones, and ones in quarantine.
struct Scene {
  explicit Scene(const Layout& layout = kLayouts[0], Sum sum = Sum::kBsd) : image(layout, sum) {
    for (uint64_t bytes = 0; bytes <= 16; ++bytes) small = image.block(1, bytes);
    image.block(44, size_of_class(44) - 16);
    image.block(9, 100, 48);
    image.at_end(2);
    image.block(2, 7);
    image.at_end(2);
    image.freed(3, kAvailable);
    image.quarantine({image.freed(3, kQuarantined), image.freed(20, kQuarantined)});
    first = image.large(200'000);
    large = image.large(150'001);
    cached = image.cached(3);
    image.pool(layout.start == kLayouts[0].start ? 1 : 2);
    image.guarded(0, 33, false);
    image.guarded(1, kPage, false);
    image.guarded(2, 20, true);
  }

  Scudo image;
  uint64_t small = 0, first = 0, large = 0, cached = 0;
};

CASE(all_blocks_are_found_with_their_sizes) {
  for (const Layout& layout : kLayouts) {
    for (Sum sum : {Sum::kCrc, Sum::kBsd}) {
      context = "list at " + std::to_string(layout.list);
      Scene scene(layout, sum);
      Found found = walk(scene.image);
      CHECK(found.present);
      CHECK_EQ(found.reason, std::string("fine"));
      CHECK(found.blocks == scene.image.blocks);
    }
  }
}

CASE(what_holds_no_blocks_is_no_root_either) {
  Scene scene;
  Found found = walk(scene.image);
  CHECK(found.regions.contains(scene.cached));
  CHECK(found.regions.contains(Scudo::kRecords));
}

CASE(a_program_may_protect_pages_of_its_blocks) {
  Scene scene;
  uint64_t block = scene.image.block(44, size_of_class(44) - 16);
  scene.image.memory.protect(heaps::align_up(block, kPage), 4 * kPage, 0);
  scene.image.memory.protect(heaps::align_up(scene.first, kPage), 4 * kPage, 0);
  CHECK(walk(scene.image).blocks == scene.image.blocks);
}

CASE(a_program_may_have_a_block_like_a_note_of_quarantine) {
  Scene scene;
  uint64_t same = scene.image.quarantine({scene.small});
  scene.image.blocks[same] = 8176;
  CHECK(walk(scene.image).blocks == scene.image.blocks);
}

CASE(releases_agree_on_a_list_without_large_blocks) {
  for (const Layout& layout : kLayouts) {
    Scudo image(layout, Sum::kCrc);
    image.block(5, 1);
    CHECK(walk(image).blocks == image.blocks);
  }
}

CASE(two_kinds_of_checksums_are_one_too_many) {
  Scene scene;
  Checksums checksums(Scudo::kCookie);
  uint64_t bits = heaps::word(scene.small - kHeaderBytes) << 16 >> 16;
  scene.image.memory.put(scene.small - kHeaderBytes,
                         bits | uint64_t{checksums.crc(scene.small, bits)} << 48);
  CHECK_EQ(walk(scene.image).reason, std::string("a block's header does not match its checksum"));
}

// What each damage ends in.
struct Damage {
  const char* reason;
  void (*apply)(Scene& scene);
};

constexpr uint64_t kLastEntry =
    Scudo::kClassesAt + kClassesBytes + kLayouts[0].entries + (kCacheEntries - 1) * kEntryBytes;

constexpr Damage kDamages[] = {
    {"a block's header does not match its checksum",
     [](Scene& s) { s.image.memory.put(s.small - kHeaderBytes, 0x101); }},
    {"a block's header does not fit its size class",
     [](Scene& s) { s.image.head(s.small, 1, kAllocated, 17, 0); }},
    {"a block's header does not fit its size class",
     [](Scene& s) { s.image.head(s.small, 2, kAllocated, 1, 0); }},
    {"an aligned block is not where its mark says",
     [](Scene& s) {
       s.image.memory.store(s.small - kHeaderBytes, kAlignedMarker);
       s.image.memory.store(s.small - kHeaderBytes + 4, 0x7fffffff);
     }},
    {"a large block's header does not match its checksum",
     [](Scene& s) { s.image.memory.put(s.large - kHeaderBytes, 0x100); }},
    {"a large block's header does not fit its mapping",
     [](Scene& s) { s.image.head(s.large, 0, kAllocated, 0xfffff, 0); }},
    {"a large block's mapping is not anonymous memory",
     [](Scene& s) { s.image.memory.put(s.large - 64 + 24, 1ull << 40); }},
    {"a large block overlaps the memory of something else",
     [](Scene& s) { s.image.memory.put(s.large - 64 + 16, s.first & ~(kPage - 1)); }},
    {"a large block is not in its mapping",
     [](Scene& s) { s.image.memory.put(s.large - 64 + 16, Scudo::kLarge + 200 * kPage); }},
    {"a large block is not in its mapping",
     [](Scene& s) {
       s.image.memory.store(s.large - kHeaderBytes, kAlignedMarker);
       s.image.memory.store(s.large - kHeaderBytes + 4, 0x7fffffff);
     }},
    {"the start of a slot cannot be read",
     [](Scene& s) { s.image.memory.protect(s.small & ~(kPage - 1), kPage, 0); }},
    {"the list of large blocks is not consistent",
     [](Scene& s) { s.image.memory.put(s.large - 64, 8); }},
    {"the list of large blocks does not end with the last one",
     [](Scene& s) { s.image.memory.put(s.large - 64 + 8, s.first - 64); }},
    {"the large blocks are not as many as were allocated and not freed",
     [](Scene& s) { s.image.memory.put(s.image.list(), 3); }},
    {"a large block's mapping is not anonymous memory",
     [](Scene& s) { s.image.memory.put(kLastEntry + 8, 1); }},
    {"the guarded blocks are recorded in an unknown form",
     [](Scene& s) { s.image.memory.store(Scudo::kPool + 4, uint16_t{3}); }},
    {"a guarded block is not in its page",
     [](Scene& s) { s.image.memory.put(Scudo::kRecords + 8, 4 * kPage); }},
};

CASE(damage_is_noticed) {
  for (const Damage& damage : kDamages) {
    context = damage.reason;
    Scene scene;
    damage.apply(scene);
    CHECK_EQ(walk(scene.image).reason, std::string(damage.reason));
  }
}

CASE(other_data_is_no_heap) {
  constexpr uint64_t kStart = kLayouts[0].start;
  Scene scene;
  uint64_t start = heaps::word(Scudo::kClassesAt + 3 * kClassBytes + kStart);
  scene.image.memory.put(Scudo::kClassesAt + 7 * kClassBytes + kStart, start);
  CHECK(!walk(scene.image).present);
}

}  // namespace
}  // namespace reachscan::tests
