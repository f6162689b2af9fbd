// Answers queries about one block: what it is, what points to it, and what keeps it alive.
#pragma once

#include "sweeper/blob/emit.hpp"
#include "sweeper/blocks/kinds.hpp"
#include "sweeper/leaks/doubt.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/roots/roots.hpp"

namespace reachscan::sweeper {

// Batches rows of references for the stream. The kinds of the blocks that hold them go to `kinds`.
class ReferenceWriter {
 public:
  ReferenceWriter(wire::RecordType type, KindTable& kinds)
      : type_(type), kinds_(kinds), rows_(map_memory, kBatch) {}

  struct Row {
    uint64_t slot;
    uint64_t value;
    uint32_t holder;
    uint32_t index;
    uint64_t block;
    uint64_t size;
  };
  static_assert(sizeof(Row) == wire::row_bytes(wire::kReferences));

  void add(const Row& row) {
    rows_.push(row);
    if (row.block != 0) kinds_.add_single(row.block);
    if (rows_.size() == kBatch) flush();
  }

  void flush() {
    if (rows_.empty()) return;
    Record record(type_);
    record.u32(static_cast<uint32_t>(rows_.size())).raw(rows_.begin(), rows_.size() * sizeof(Row));
    record.send();
    rows_.clear();
  }

 private:
  static constexpr std::size_t kBatch = 4096;

  wire::RecordType type_;
  KindTable& kinds_;
  List<Row> rows_;
};

// A breadth-first search from all roots at once: the first chain it finds is among the shortest.
class ChainSearch {
 public:
  ChainSearch(const Space& space, BlockMap& blocks, DeferredWords& put_aside, KindTable& kinds,
              std::size_t live)
      : space_(space),
        blocks_(blocks),
        put_aside_(put_aside),
        kinds_(kinds),
        steps_(map_memory, live) {}

  // Sends the chain to the block that starts at `target`. Returns false if there is none; then
  // everything reachable is marked.
  bool find(Roots& roots, uint64_t target) {
    roots.each_part([&](uint64_t start, uint64_t end) {
      each_word(space_, start, end, [&](uint64_t slot, uint64_t) { enter({slot, kNone, 0}); });
    });
    roots.each_unaligned_word([&](uint64_t slot, uint64_t) { enter({slot, kNone, 0}); });
    roots.each_register_word([&](uint64_t index, uint64_t) {
      enter({0, kNone, static_cast<uint32_t>(index)});
    });
    for (std::size_t next = 0; next < steps_.size(); ++next) {
      uint64_t block = blocks_.block_of(value_of(steps_[next]));
      if (block == target) {
        send_chain_to(static_cast<uint32_t>(next));
        return true;
      }
      const LeftBehind left_behind(blocks_, block);
      each_word(space_, block, blocks_.end_of(block), [&](uint64_t slot, uint64_t value) {
        if (left_behind.has(slot, value) && put_aside_.add(value)) return;
        enter({slot, static_cast<uint32_t>(next), 0});
      });
    }
    return false;
  }

 private:
  static constexpr uint32_t kNone = ~0u;

  // A word that first reached a block. The step before it reached the block that contains the word.
  struct Step {
    uint64_t slot;  // 0: word `index` of those outside memory
    uint32_t before;
    uint32_t index;
  };

  uint64_t value_of(const Step& step) const {
    if (step.slot != 0) return word(step.slot);
    uint64_t found = 0;
    Roots::each_word_of_register(step.index, [&](uint64_t value) {
      if (blocks_.block_of(found) == 0) found = value;
    });
    return found;
  }

  void enter(const Step& step) {
    uint64_t value = value_of(step);
    if (blocks_.may_point(value) && blocks_.mark(value) != 0) steps_.push(step);
  }

  void send_chain_to(uint32_t last) {
    std::size_t length = 0;
    for (uint32_t at = last; at != kNone; at = steps_[at].before) ++length;
    List<uint32_t> way(map_memory, length);
    for (uint32_t at = last; at != kNone; at = steps_[at].before) way.push(at);
    ReferenceWriter writer(wire::kChain, kinds_);
    while (!way.empty()) writer.add(row_of(steps_[way.pop()]));
    writer.flush();
  }

  ReferenceWriter::Row row_of(const Step& step) const {
    uint64_t value = value_of(step);
    if (step.before == kNone)
      return {step.slot,  value, step.slot != 0 ? wire::kRootMemory : wire::kRootWord,
              step.index, 0,     0};
    uint64_t block = blocks_.block_of(step.slot);
    return {step.slot, value, wire::kReachableBlock, 0, block, blocks_.end_of(block) - block};
  }

  const Space& space_;
  BlockMap& blocks_;
  DeferredWords& put_aside_;
  KindTable& kinds_;
  List<Step> steps_;  // at most one per live block
};

// Sends everything that points into the block at `target`. Everything reachable is marked.
inline void send_references(const Space& space, Roots& roots, const BlockMap& blocks,
                            KindTable& kinds, uint64_t target) {
  ReferenceWriter writer(wire::kReferences, kinds);
  auto points_to_target = [&](uint64_t value) { return blocks.block_of(value) == target; };
  auto add_root = [&](uint64_t slot, uint64_t value) {
    if (points_to_target(value)) writer.add({slot, value, wire::kRootMemory, 0, 0, 0});
  };
  roots.each_part([&](uint64_t start, uint64_t end) { each_word(space, start, end, add_root); });
  roots.each_unaligned_word(add_root);
  roots.each_register_word([&](uint64_t index, uint64_t value) {
    if (points_to_target(value))
      writer.add({0, value, wire::kRootWord, static_cast<uint32_t>(index), 0, 0});
  });
  blocks.each_live([&](uint64_t block) {
    uint64_t end = blocks.end_of(block);
    uint32_t holder = blocks.is_marked(block) ? wire::kReachableBlock : wire::kLeakedBlock;
    each_word(space, block, end, [&](uint64_t slot, uint64_t value) {
      if (points_to_target(value)) writer.add({slot, value, holder, 0, block, end - block});
    });
  });
  writer.flush();
}

// Returns where a word is that marking put aside, preferably in a block in use.
inline uint64_t slot_of_put_aside(const Space& space, const BlockMap& blocks,
                                  const DoubtPass& second, uint64_t value) {
  uint64_t in_use = 0, in_lost = 0;
  blocks.each_marked([&](uint64_t block) {
    each_word(space, block, blocks.end_of(block), [&](uint64_t slot, uint64_t found) {
      if (found != value || !LeftBehind(blocks, block).has(slot, value)) return;
      (second.is_lost(block) ? in_lost : in_use) = slot;
    });
  });
  return in_use != 0 ? in_use : in_lost;
}

// Sends the word that makes the block count as in use or doubtful, or the one that its owner
// depends on. `about` is the block that the word means.
inline void send_sighting(const Space& space, const BlockMap& blocks, const DoubtPass& second,
                          KindTable& kinds, uint64_t block) {
  const Sighting* seen = second.sighting(block);
  if (seen == nullptr) return;
  uint64_t slot = seen->slot;
  if (slot == 0 && seen->index == Sighting::kSomewhere) {
    slot = slot_of_put_aside(space, blocks, second, seen->value);
    if (slot == 0) return;
  }
  uint64_t holder = slot != 0 ? blocks.block_of(slot) : 0;
  uint64_t meant = second.meant_by(*seen);
  // The word may contain more than the address.
  uint64_t value = control()->withheld != 0 ? meant : seen->value;
  ReferenceWriter::Row row{slot, value, wire::kRootMemory, seen->index, holder, 0};
  if (slot == 0) row.holder = wire::kRootWord;
  if (holder != 0) {
    row.holder = second.is_lost(holder) ? wire::kLeakedBlock : wire::kReachableBlock;
    row.size = blocks.end_of(holder) - holder;
    kinds.add_single(holder);
  }
  Record record(wire::kSightings);
  record.u32(1).u32(seen->form).u64(meant).raw(&row, sizeof row).send();
}

// Reports what is at the queried address. Everything reachable is marked.
inline void send_block(const BlockMap& blocks, uint64_t asked, bool reached) {
  uint64_t start = blocks.block_of(asked);
  const heaps::Region* region = blocks.region_of(asked);
  uint32_t state = region == nullptr ? wire::kNoHeap
                   : start == 0      ? wire::kNotLive
                   : reached         ? wire::kReachable
                                     : wire::kLeaked;
  Record record(wire::kBlock);
  record.u64(asked).u64(start).u64(start != 0 ? blocks.end_of(start) - start : 0);
  record.u32(state).u32(region != nullptr ? region->arena : 0);
  record.send();
}

}  // namespace reachscan::sweeper
