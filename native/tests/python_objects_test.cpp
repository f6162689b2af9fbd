// What is a Python object, what holds it, and which unreachable objects are leaks.
#include <set>

#include "check.hpp"
#include "heaps/pymalloc/walker.hpp"
#include "on_threads.hpp"
#include "python_image.hpp"
#include "sweeper/python/collectible.hpp"
#include "sweeper/python/cut_links.hpp"

namespace reachscan::tests {
namespace {

using sweeper::PythonObjects;

constexpr uint64_t kBlock = 96, kLinks = 16;

// Objects in blocks of one size. The collector tracks those of type `node`.
struct Scene {
  Scene() { image.add_pool(kBlock); }

  uint64_t node(uint64_t references) {
    return image.make_object(image.take(), kLinks, node_type, references);
  }
  void point(uint64_t from, unsigned word, uint64_t to) {
    image.memory.put(from + 16 + 8 * word, to);
  }

  // Must come after everything is built.
  void enumerate() {
    image.add_table(blocks);
    heaps::pymalloc::Walker walker(image.memory.space(), none, sweeper::map_memory, true);
    CHECK(walker.enumerate(blocks, alone, 0).fine());
    blocks.finish();
    blocks.mark(Python::kTable);
  }

  // Returns what leaks if nothing is reachable.
  std::set<uint64_t> leaks() {
    enumerate();
    PythonObjects objects(image.memory.space());
    sweeper::CutLinks(image.memory.space(), blocks, objects);
    std::size_t unmarked = 0;
    blocks.each_unmarked([&](uint64_t) { ++unmarked; });
    sweeper::Collectible(image.memory.space(), blocks, objects, unmarked).spare();
    std::set<uint64_t> found;
    blocks.each_unmarked([&](uint64_t block) { found.insert(block); });
    return found;
  }

  Host host;
  Python image;
  uint64_t node_type = image.add_type("node", sweeper::kHasCollectorHead);
  uint64_t plain_type = image.add_type("plain", 0);
  libc::Threads none;
  heaps::BlockMap blocks{image.memory.space(), sweeper::map_memory};
};

CASE(types_say_where_objects_begin) {
  Scene scene;
  uint64_t managed = scene.image.add_type(
      "managed", sweeper::kHasCollectorHead | sweeper::kManagedDict | sweeper::kIsHeapType);
  PythonObjects objects(scene.image.memory.space());
  struct Row {
    uint64_t before, type;
  };
  for (Row row : {Row{0, scene.plain_type}, {16, scene.node_type}, {32, managed}}) {
    uint64_t block = scene.image.take();
    uint64_t object = scene.image.make_object(block, row.before, row.type, 1);
    CHECK_EQ(objects.in({block, block + kBlock}), object);
  }
  // Smaller than the size in its type says.
  uint64_t text_type = scene.image.add_type("str", sweeper::kTextSubclass);
  scene.image.memory.put(text_type + sweeper::kTypeBasicSize, kBlock + 16);
  uint64_t text = scene.image.make_object(scene.image.take(), 0, text_type, 1);
  CHECK_EQ(objects.in({text, text + kBlock}), text);
  uint64_t misplaced = scene.image.take();
  scene.image.make_object(misplaced, 0, scene.node_type, 1);
  CHECK(objects.in({misplaced, misplaced + kBlock}) == 0);
  // An array of pointers, the second of which is to a type.
  uint64_t array = scene.image.take();
  scene.image.make_object(array, 0, scene.plain_type, misplaced);
  CHECK(objects.in({array, array + kBlock}) == 0);
}

// Returns the offsets of the words from the first of these offsets to the second.
std::set<uint64_t> from_to(uint64_t first, uint64_t end) {
  std::set<uint64_t> offsets;
  for (; first < end; first += 8) offsets.insert(first);
  return offsets;
}

CASE(what_lies_behind_an_object_holds_nothing) {
  constexpr uint64_t kSize = kBlock - 16, kKind = 32, kAscii = 0x60;
  struct Row {
    uint64_t flags, items, item_bytes;
    std::set<uint64_t> unused;
  };
  const Row rows[] = {
      {0, 0, 0, from_to(kSize, kBlock)},
      {sweeper::kInlineValues, 0, 0, {}},
      // As many items as fit, and fewer: what is left is more than rounding adds, or some of a
      // word.
      {0, 2, 8, {}},
      {0, 1, 8, from_to(kSize + 8, kBlock)},
      {0, 5, 1, from_to(kSize, kBlock)},
      {sweeper::kIsHeapType, 5, 1, from_to(kSize + 8, kBlock)},
      {0, 3, 8, {}},
      // In place of a number of items: nothing, or a pointer.
      {0, 0, 8, {}},
      {0, kWorld, 8, {}},
      {sweeper::kBytesSubclass, 9, 1, from_to(32, kBlock)},
      {sweeper::kTextSubclass, 9, 0, {kKind}},
      {sweeper::kTextSubclass | sweeper::kIsHeapType, 9, 0, {}},
  };
  for (const Row& row : rows) {
    Scene scene;
    Memory& memory = scene.image.memory;
    uint64_t type = scene.image.add_type("type of a row", row.flags);
    memory.put(type + sweeper::kTypeBasicSize, kSize);
    memory.put(type + sweeper::kTypeItemSize, row.item_bytes);
    uint64_t object = scene.image.make_object(scene.image.take(), 0, type, 1);
    memory.put(object + sweeper::kObjectItems, row.items);
    PythonObjects objects(memory.space());
    std::set<uint64_t> unused;
    for (uint64_t offset = 0; offset < kBlock; offset += 8)
      if (objects.is_unused(object, object + offset, {object, object + kBlock}))
        unused.insert(offset);
    CHECK(unused == row.unused);
    if ((row.flags & sweeper::kTextSubclass) == 0 || !row.unused.contains(kKind)) continue;
    memory.put(object + kKind, kAscii);
    CHECK(objects.is_unused(object, object + kBlock - 8, {object, object + kBlock}));
    CHECK(!objects.is_unused(object, object + kKind + 8, {object, object + kBlock}));
  }
}

CASE(what_is_no_type_is_no_type) {
  for (uint64_t field : {sweeper::kObjectType, sweeper::kTypeName, sweeper::kTypeBasicSize,
                         sweeper::kTypeDealloc, sweeper::kTypeFlags}) {
    Scene scene;
    sweeper::PythonTypes types(scene.image.memory.space());
    CHECK(types.at(scene.plain_type).is_type());
    sweeper::PythonTypes others(scene.image.memory.space());
    scene.image.memory.put(scene.plain_type + field, 8);
    CHECK(!others.at(scene.plain_type).is_type());
  }
}

CASE(the_lists_of_the_collector_are_cut) {
  Scene scene;
  uint64_t head = Python::kVariables + 16;  // of the list; two words
  uint64_t ring[] = {head, scene.node(1) - kLinks, scene.node(1) - kLinks, head};
  for (unsigned i = 0; i < 3; ++i) {
    scene.image.memory.put(ring[i], ring[i + 1] | (i == 1));  // with a flag
    scene.image.memory.put(ring[i + 1] + 8, ring[i] | 2);
  }
  uint64_t dying = scene.node(0) - kLinks;  // in a list of another kind
  scene.image.memory.put(dying + 8, ring[1]);
  scene.enumerate();
  PythonObjects objects(scene.image.memory.space());
  sweeper::CutLinks(scene.image.memory.space(), scene.blocks, objects);
  for (uint64_t links : ring) CHECK(heaps::word(links) == 0 && heaps::word(links + 8) == 0);
  CHECK_EQ(heaps::word(dying + 8), ring[1]);
}

CASE(weak_references_hold_nothing) {
  Scene scene;
  uint64_t weak = scene.image.add_type("weakref.ReferenceType", sweeper::kHasCollectorHead);
  uint64_t derived =
      scene.image.add_type("KeyedRef", sweeper::kHasCollectorHead | sweeper::kIsHeapType, weak);
  uint64_t object = scene.node(1);
  for (uint64_t type : {weak, derived}) {
    uint64_t reference = scene.image.make_object(scene.image.take(), kLinks, type, 1);
    scene.point(reference, 0, object);
    scene.point(reference, 1, object);  // the callback for its death
  }
  scene.enumerate();
  PythonObjects objects(scene.image.memory.space());
  sweeper::CutLinks(scene.image.memory.space(), scene.blocks, objects);
  scene.blocks.each_live([&](uint64_t block) {
    if (block + kLinks == object || block == Python::kTable) return;
    CHECK(heaps::word(block + 32) == 0 && heaps::word(block + 40) == object);
  });
}

// A generator of 3.9 or 3.10 holds its frame, which leads back to it; so do values that the frame
// no longer needs.
CASE(what_a_frame_has_left_holds_nothing) {
  constexpr uint64_t kFrameBlock = 400, kStack = 376;
  for (uint64_t size : {sweeper::kFrameBytes39, sweeper::kFrameBytes310}) {
    bool is_39 = size == sweeper::kFrameBytes39;
    for (bool runs : {false, true}) {
      Scene scene;
      Memory& memory = scene.image.memory;
      uint64_t type = scene.image.add_type("frame", 0), generator = scene.node(2);
      uint64_t needed = scene.node(1), left = scene.node(2);
      memory.put(type + sweeper::kTypeBasicSize, size);
      scene.image.add_pool(kFrameBlock);
      uint64_t frame = scene.image.make_object(scene.image.take(), 0, type, 1);
      scene.point(generator, 0, frame);
      memory.put(frame + 64, frame + kStack);
      if (is_39) memory.put(frame + 72, frame + kStack + 8);
      if (!is_39) memory.store<int32_t>(frame + 80, 1);
      memory.put(frame + (is_39 ? 96 : 88), generator);
      if (is_39) memory.store<uint8_t>(frame + 116, runs);
      if (!is_39) memory.store<int32_t>(frame + 108, runs ? 0 : -1);
      memory.put(frame + kStack, needed);
      memory.put(frame + kStack + 8, left);
      std::set<uint64_t> leaks = scene.leaks();
      CHECK_EQ(leaks.count(generator - kLinks), 1u);
      CHECK_EQ(heaps::word(frame + (is_39 ? 96 : 88)), runs ? generator : 0);
      CHECK_EQ(heaps::word(frame + kStack), needed);
      CHECK_EQ(heaps::word(frame + kStack + 8), runs ? left : 0);
    }
  }
}

CASE(a_cycle_is_for_the_collector) {
  Scene scene;
  uint64_t first = scene.node(1), second = scene.node(1), text = scene.image.take();
  scene.point(first, 0, second);
  scene.point(second, 0, first | 1);  // the interpreter's tag
  scene.point(first, 1, text);
  CHECK(scene.leaks().empty());
}

CASE(a_lost_reference_leaks_with_all_it_holds) {
  Scene scene;
  uint64_t first = scene.node(2), second = scene.node(1), other = scene.node(1);
  uint64_t text = scene.image.take();
  scene.point(first, 0, second);
  scene.point(second, 0, first);
  scene.point(second, 1, text);
  scene.point(other, 0, other);
  scene.point(other, 1, second);
  CHECK((scene.leaks() == std::set{first - kLinks, second - kLinks, text}));
}

CASE(what_a_lost_block_holds_leaks_with_it) {
  Scene scene;
  uint64_t lost = scene.image.take(), object = scene.node(1);
  scene.image.memory.put(lost, object);
  CHECK((scene.leaks() == std::set{lost, object - kLinks}));
}

CASE(what_dies_or_never_dies_is_no_leak) {
  Scene scene;
  uint64_t dying = scene.node(0), immortal = scene.node(sweeper::kImmortal), held = scene.node(1);
  scene.point(dying, 0, held);
  scene.point(immortal, 0, held);
  CHECK(scene.leaks().empty());
}

}  // namespace
}  // namespace reachscan::tests
