// Orders the leaked blocks: each head of a leaked structure, followed by its descendants.
//
// A head is a block that no other leaked structure points into; for a ring without an entry, one
// member is the head. Two depth-first passes find the heads. The first notes where it had to start
// again; the second processes those starts in reverse. A start that something else reaches is
// reached from a later start (had the reaching block been started earlier, this one would not have
// been a start). So what the second pass still finds unmarked is a head: exactly one per structure.
#pragma once

#include "sweeper/leaks/leak_writer.hpp"
#include "sweeper/mark/dense_maps.hpp"
#include "sweeper/mark/words.hpp"

namespace reachscan::sweeper {

// Visits everything that `start` reaches among unmarked blocks, except through words that were left
// behind. visit(block, parent, slot) is called when a block is first reached, by the word at `slot`
// (0: none), and returns the parent value for its children.
class Explorer {
 public:
  Explorer(const heaps::Space& space, BlockMap& blocks, std::size_t capacity)
      : space_(space), blocks_(blocks), open_(map_memory, capacity) {}

  template <typename Visit>
  void explore(uint64_t start, Visit visit) {
    if (blocks_.mark(start) == 0) return;
    open_.push({start, visit(start, wire::kDirect, 0), 0});
    while (!open_.empty()) {
      Item item = open_.pop();
      const LeftBehind left_behind(blocks_, item.block);
      each_word(space_, item.block, blocks_.end_of(item.block), [&](uint64_t at, uint64_t value) {
        if (!blocks_.may_point(value) || left_behind.has(at, value)) return;
        if (uint64_t child = blocks_.mark(value)) open_.push({child, visit(child, item.id, at), 0});
      });
    }
  }

 private:
  struct Item {
    uint64_t block;
    uint32_t id;  // what visit() returned for the block
    uint32_t reserved;
  };

  const heaps::Space& space_;
  BlockMap& blocks_;
  List<Item> open_;  // each block is in it once, so it holds at most all leaks
};

inline bool starts_with_vtable(const heaps::Space& space, uint64_t block) {
  return in_constant_data(space, heaps::word(block));
}

// Which member of a ring represents it. An object with a class is most informative; next, the owner
// of a container, before the nodes that the container allocated.
enum class Standing { kHasClass, kOwner, kAny };

inline bool may_represent(Standing wanted, const heaps::Space& space, const BlockMap& blocks,
                          uint64_t block) {
  if (wanted == Standing::kAny) return true;
  if (wanted == Standing::kHasClass) return starts_with_vtable(space, block);
  ShapeTest test(space, blocks, block, blocks.end_of(block) - block);
  return !(test.is_tree_node() || test.is_ring_node() || test.is_chain_node(0) ||
           test.is_bucket_array());
}

// Sends all unmarked blocks and leaves them marked.
inline void collect_leaks(const heaps::Space& space, BlockMap& blocks, LeakWriter& writer) {
  std::size_t count = 0;
  blocks.each_unmarked([&](uint64_t) { ++count; });
  if (count == 0) return;
  List<uint64_t> leaked(map_memory, count);
  blocks.each_unmarked([&](uint64_t block) { leaked.push(block); });

  Explorer explorer(space, blocks, count);
  // The member of a ring that the first pass meets first is its head. The starts are moved to the
  // front, swapped with blocks that have been examined.
  std::size_t starts = 0;
  for (Standing wanted : {Standing::kHasClass, Standing::kOwner, Standing::kAny}) {
    for (std::size_t i = starts; i < count; ++i) {
      uint64_t block = leaked[i];
      if (blocks.is_marked(block) || !may_represent(wanted, space, blocks, block)) continue;
      leaked[i] = leaked[starts];
      leaked[starts++] = block;
      explorer.explore(block, [](uint64_t, uint32_t, uint64_t) { return 0u; });
    }
  }
  for (uint64_t block : leaked) blocks.clear_mark(block);
  while (starts > 0)
    explorer.explore(leaked[--starts], [&](uint64_t block, uint32_t parent, uint64_t slot) {
      return writer.add(block, parent, slot);
    });
}

}  // namespace reachscan::sweeper
