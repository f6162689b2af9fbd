// Blocks with a mapping of their own: nothing links them, so their headers must identify them.
#include "check.hpp"
#include "heaps/glibc/walker.hpp"
#include "scene.hpp"

namespace reachscan::tests {
namespace {

using heaps::glibc::kMapped;

// A scene with room for mapped blocks, none of which exist yet.
struct Room {
  explicit Room(const Release& release) : scene(release, {}) {
    scene.memory.map(kBlocks, 64 * kPage);
  }
  uint64_t add(uint64_t page, uint64_t pages, uint64_t offset = 0) {
    uint64_t base = kBlocks + page * kPage;
    return expect(scene.glibc.mapped(base, pages, offset), base + pages * kPage);
  }
  uint64_t expect(uint64_t user, uint64_t end) {
    scene.blocks[user] = end - user - scene.glibc.mapped_tail();
    ++count;
    scene.set_mapped(static_cast<int32_t>(count), (count + 60) * kPage);
    return user;
  }
  void check() {
    check_found(scene);
    Found found = walk(scene);
    CHECK_EQ(found.mapped_found, count);
    CHECK_EQ(found.mapped_expected, count);
  }
  Scene scene;
  uint64_t count = 0;
};

CASE(every_alignment_and_size) {
  for (const Release& release : releases()) {
    for (uint64_t alignment = 16; alignment <= 4 * kPage; alignment *= 2) {
      for (uint64_t pages : {1, 2, 5}) {
        context = std::string(release.name) + ", alignment " + std::to_string(alignment);
        Room room(release);
        uint64_t offset = alignment - 16;
        pages += heaps::align_up(offset, kPage) / kPage;
        room.add(3, pages, offset);
        room.add(3 + pages, pages, offset);  // directly after it
        room.add(40, 1);
        room.check();
      }
    }
  }
}

// realloc moves the pages but corrects only the header that it knows.
CASE(a_stale_header_at_the_base) {
  for (const Release& release : releases()) {
    for (uint64_t offset : {0xff0, 0x1ff0, 0x2ff0}) {
      for (uint64_t pages : {6, 9, 30}) {
        context = release.name;
        Room room(release);
        uint64_t user = room.scene.glibc.mapped(kBlocks, pages, offset);
        room.expect(user, kBlocks + pages * kPage);
        room.scene.memory.put(kBlocks + 8, (12 * kPage - release.mapped_excess) | kMapped);
        room.add(pages, 2);
        room.check();
      }
    }
  }
}

// The kernel may split and merge mappings.
CASE(blocks_across_mappings) {
  Room room(release_named("2.35"));
  room.scene.memory.protect(kBlocks + 7 * kPage, 10 * kPage, kReadWrite | wire::kExecute);
  room.add(5, 3);
  room.add(8, 12);
  room.add(20, 1);
  room.check();
}

CASE(protected_pages_inside) {
  Room room(release_named("2.35"));
  room.scene.memory.protect(kBlocks + 7 * kPage, kPage, 0);
  room.add(5, 4);
  room.add(10, 2);
  room.check();
}

// Headers are always written; the rest of a block need not be.
CASE(blocks_that_were_never_written) {
  for (const Release& release : releases()) {
    for (uint64_t offset : {0, 0x30, 0xff0, 0x1ff0}) {
      context = std::string(release.name) + ", offset " + std::to_string(offset);
      Room room(release);
      room.add(2, 8, offset);
      room.add(10, 1);
      uint64_t written = 2 + heaps::align_up(offset + 16, kPage) / kPage;
      room.scene.memory.leave_out(kBlocks + written * kPage, (10 - written) * kPage);
      room.check();
    }
  }
}

// A stack that was mapped below a large block forms one mapping with it.
CASE(next_to_the_stack_of_a_thread) {
  Room room(release_named("2.35"));
  uint64_t stack = kBlocks + 8 * kPage, end = kBlocks + 40 * kPage, descriptor = end - 0x940;
  room.scene.memory.put(descriptor, descriptor);
  room.scene.memory.put(descriptor + 16, descriptor);
  room.scene.memory.put(descriptor + 0x690, stack);
  room.scene.memory.put(descriptor + 0x698, end - stack);
  room.scene.memory.put(descriptor + 0x6a0, 0);
  room.scene.threads.push_back({0x1000, stack + 16 * kPage, descriptor});
  // Dead data on the stack that looks like a block is not one.
  room.scene.glibc.mapped(stack + 4 * kPage, 2);
  room.add(1, 2);
  room.add(40, 3);
  room.check();
}

CASE(none_are_looked_for_if_the_library_has_none) {
  Room room(release_named("2.35"));
  room.scene.glibc.mapped(kBlocks, 4);
  room.check();
}

// A stale header amid other memory, with no neighbour and no edge of the mapping next to it.
CASE(more_than_the_library_knows) {
  for (const Release& release : releases()) {
    context = release.name;
    Room room(release);
    room.add(0, 2);
    room.add(2, 3);
    room.add(60, 4);
    room.scene.glibc.mapped(kBlocks + 20 * kPage, 3);
    room.scene.glibc.mapped(kBlocks + 30 * kPage, 5);
    room.check();
    // One of the isolated ones may be genuine, but it is unknown which.
    room.scene.set_mapped(4, 1 << 20);
    CHECK_EQ(walk(room.scene).mapped_found, 5u);
  }
}

// As in an arena of Python's allocator, whose pages begin with numbers: nothing as small as this
// gets a mapping of its own.
CASE(more_than_the_library_knows_and_small) {
  for (const Release& release : releases()) {
    context = release.name;
    Room room(release);
    room.add(0, 16);
    room.add(16, 16);
    room.scene.glibc.mapped(kBlocks + 63 * kPage, 1);  // at the edge of the mapping
    room.check();
    room.scene.glibc.mapped(kBlocks + 50 * kPage, 3);
    room.check();
    room.scene.glibc.mapped(kBlocks + 33 * kPage, 16);  // large, but in the middle
    room.check();
  }
}

// Otherwise, the count serves only for a warning.
CASE(a_count_that_lies) {
  Room room(release_named("2.35"));
  room.add(0, 2);
  room.add(2, 2);
  for (int32_t lie : {1, 3, 1 << 20}) {
    room.scene.set_mapped(lie, uint64_t{1} << 34);
    check_found(room.scene);
    Found found = walk(room.scene);
    CHECK_EQ(found.mapped_found, 2u);
    CHECK_EQ(found.mapped_expected, static_cast<uint64_t>(lie));
  }
  // Nonsense: mp_ then counts as not found.
  for (int32_t lie : {-1, (1 << 24) + 1}) {
    room.scene.set_mapped(lie, uint64_t{1} << 40);
    check_found(room.scene);
  }
}

CASE(headers_that_do_not_fit_are_no_blocks) {
  Room room(release_named("2.35"));
  Memory& memory = room.scene.memory;
  auto page = [](uint64_t n) { return kBlocks + n * kPage; };
  memory.put(page(0) + 8, (100 * kPage) | kMapped);     // longer than the memory
  memory.put(page(1) + 8, 0 | kMapped);                 // empty
  memory.put(page(2) + 8, (2 * kPage + 48) | kMapped);  // not whole pages
  memory.put(page(3) + 8, (2 * kPage) | kMapped | 1);   // in use by an arena
  memory.put(page(4) + 8, (2 * kPage) | kMapped | 4);
  memory.put(page(5), 0x40), memory.put(page(5) + 8, (2 * kPage) | kMapped);
  memory.put(page(6) + 8, ~7ull | kMapped);                                     // wraps around
  memory.put(page(7) - 16, 1 << 30), memory.put(page(7) - 8, kPage | kMapped);  // base elsewhere
  memory.put(page(9) - 16, ~0ull << 12), memory.put(page(9) - 8, kPage | kMapped);
  room.add(12, 2);
  room.check();
}

// A header whose base is in a heap that ends before the header: not a block, and the walk must
// still make progress.
CASE(a_base_inside_a_region_that_ends_before_the_block) {
  const Release& release = release_named("2.35");
  Room room(release);
  Scene& scene = room.scene;
  // The first block is found by its own page-aligned header; its data shows another base.
  room.add(0, 6, 0xff0);
  uint64_t base = kBlocks + 4 * kPage, header = kBlocks + 9 * kPage - 16;
  scene.memory.put(base, 0);
  scene.memory.put(base + 8, (8 * kPage) | kMapped);
  scene.memory.put(header, header - base);
  scene.memory.put(header + 8, (base + 8 * kPage - header) | kMapped);
  Found found = walk(scene);
  CHECK(found.verdict.fine());
  CHECK_EQ(found.blocks.count(kBlocks + kPage), 1u);
}

// The same with the heap of an arena.
CASE(a_base_inside_an_arena_that_ends_before_the_block) {
  const Release& release = release_named("2.35");
  Scene scene(release, {.thread_arena = true});
  uint64_t base = scene.full_heap + 4 * kPage, page = scene.full_heap_end + 2 * kPage;
  Memory& memory = scene.memory;
  memory.protect(scene.full_heap_end, 8 * kPage, kReadWrite);
  Chunks chunks(memory, heaps::align_up(scene.thread_arena + release.arena.size, 16), 4);
  chunks.live(base + 0x800 - chunks.at());
  chunks.end_heap(scene.full_heap_end - chunks.at());
  memory.put(base, 0);
  memory.put(base + 8, (heaps::align_up(page + kPage - base, kPage)) | kMapped);
  memory.put(page - 16, page - 16 - base);
  memory.put(page - 8, (kPage + 16) | kMapped);
  scene.set_mapped(1, kPage);
  CHECK(walk(scene).verdict.fine());
}

}  // namespace
}  // namespace reachscan::tests
