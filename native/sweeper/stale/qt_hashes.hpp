// Hash tables of Qt 5 (QHash, QSet; the layout is from qhash.h):
//
//   zero | buckets | references, size, bytes of a node, bits (16 and 16), buckets, seed, flags
//
// A bucket leads to its first node, each node begins with the address of the next, and the last one
// leads back to the table. Words behind the table or a node were not requested, but added by
// rounding the size up.
#pragma once

#include "memory/rounding.hpp"
#include "sweeper/stale/targets.hpp"

namespace reachscan::sweeper {

class QtHashes {
 public:
  QtHashes(const heaps::BlockMap& blocks, Targets& targets) : blocks_(blocks), targets_(targets) {}

  // Adds what the words behind a table and its nodes lead to, if the marked block is one.
  // Thread-safe.
  void look_at(uint64_t block) {
    if (!is_table(block)) return;
    add_targets(block);
    each_node(block, [this](uint64_t node) { add_targets(node); });
  }

  // Returns whether the word is behind a table or a node.
  bool end_before(uint64_t owner, uint64_t slot) const {
    bool is_near_end = slot + heaps::rounding(0) >= blocks_.end_of(owner);
    return is_near_end && slot >= owner + bytes_of(owner);
  }

  // Returns whether the word is part of a node.
  bool is_in_node(uint64_t owner, uint64_t slot) const {
    uint64_t table = table_of(owner);
    return table != 0 && slot < owner + node_bytes(table);
  }

 private:
  static constexpr uint64_t kNumbers = 2 * heaps::kWord;  // their offset
  static constexpr uint64_t kTableBytes =
      heaps::align_up(kNumbers + 7 * sizeof(uint32_t), heaps::kWord);
  static constexpr uint64_t kLeastNodeBytes = 2 * heaps::kWord, kMostNodeBytes = 1 << 16;
  static constexpr unsigned kLongestChain = 16;  // there are at least as many buckets as nodes

  // One of the numbers with 32 bits.
  static uint32_t number(uint64_t table, unsigned index) {
    return heaps::load<uint32_t>(table + kNumbers + index * sizeof(uint32_t));
  }
  static uint64_t buckets(uint64_t table) { return heaps::word(table + heaps::kWord); }
  static uint64_t node_bytes(uint64_t table) { return number(table, 2); }
  static uint64_t bucket_count(uint64_t table) { return number(table, 4); }

  [[gnu::noinline]] bool is_table(uint64_t block) const {
    if (heaps::word(block) != 0) return false;
    if (!heaps::may_hold_request(blocks_.end_of(block) - block, kTableBytes)) return false;
    uint64_t references = number(block, 0), bits = number(block, 3) >> 16;
    uint64_t each = node_bytes(block), count = bucket_count(block);
    return references != 0 && each >= kLeastNodeBytes && each <= kMostNodeBytes &&
           each % heaps::kWord == 0 && count >> bits == 1 && has_room(buckets(block), count);
  }

  bool has_room(uint64_t block, uint64_t count) const {
    return blocks_.is_live(block) &&
           heaps::may_hold_request(blocks_.end_of(block) - block, count * heaps::kWord);
  }

  template <typename Visit>
  void each_node(uint64_t table, Visit visit) const {
    uint64_t first = buckets(table), end = first + bucket_count(table) * heaps::kWord;
    for (uint64_t bucket = first; bucket < end; bucket += heaps::kWord) {
      uint64_t node = heaps::word(bucket);
      for (unsigned i = 0; i < kLongestChain && node != table && blocks_.is_live(node); ++i) {
        visit(node);
        node = heaps::word(node);
      }
    }
  }

  // Returns how many bytes were requested for a table or a node, and of other blocks, how many
  // there are.
  uint64_t bytes_of(uint64_t block) const {
    if (is_table(block)) return kTableBytes;
    uint64_t bytes = blocks_.end_of(block) - block, table = table_of(block);
    bool is_node = table != 0 && heaps::may_hold_request(bytes, node_bytes(table));
    return is_node ? node_bytes(table) : bytes;
  }

  // Returns the table that the block is a node of, or 0.
  uint64_t table_of(uint64_t node) const {
    for (unsigned i = 0; i < kLongestChain; ++i) {
      node = heaps::word(node);
      if (!blocks_.is_live(node)) return 0;
      if (is_table(node)) return node;
    }
    return 0;
  }

  void add_targets(uint64_t block) {
    targets_.add_unused(block, {block + bytes_of(block), blocks_.end_of(block)});
  }

  const heaps::BlockMap& blocks_;
  Targets& targets_;
};

}  // namespace reachscan::sweeper
