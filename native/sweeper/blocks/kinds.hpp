// Totals live blocks that are alike: of equal size, arena, shape, kinds of their leading words and,
// if known, origin. Of Python objects the type decides instead of words. A few thousand kinds are
// sent instead of millions of blocks.
#pragma once

#include "sweeper/blob/emit.hpp"
#include "sweeper/blocks/masked.hpp"
#include "sweeper/blocks/origins.hpp"
#include "sweeper/blocks/shapes.hpp"
#include "sweeper/blocks/types.hpp"
#include "sweeper/blocks/word_kinds.hpp"
#include "sweeper/mark/hash.hpp"
#include "sweeper/python/object_types.hpp"

namespace reachscan::sweeper {

class KindTable {
 public:
  // `python` is null if Python objects are treated like all other blocks.
  KindTable(const Space& space, const BlockMap& blocks, Origins& origins, ObjectTypes* python)
      : space_(space),
        blocks_(blocks),
        origins_(origins),
        python_(python),
        types_(space),
        words_(space, blocks),
        kinds_(static_cast<Kind*>(map_memory(kSlots * sizeof(Kind)))) {}

  void add(uint64_t block) {
    uint64_t size = blocks_.end_of(block) - block;
    Origin origin = origins_.of(block, size);
    Kind& kind = enter(key_of(block, origin), block);
    if (kind.count == 0 || origin.time_ms < kind.oldest_ms) kind.oldest_ms = origin.time_ms;
    if (origin.time_ms > kind.newest_ms) kind.newest_ms = origin.time_ms;
    ++kind.count;
    kind.bytes += size;
  }

  // Adds a block as a kind of its own, once.
  void add_single(uint64_t block) {
    if (block == last_single_) return;
    last_single_ = block;
    uint64_t size = blocks_.end_of(block) - block;
    Origin origin = origins_.of(block, size);
    Key key = key_of(block, origin);
    key.words[0] = block;
    Kind& kind = enter(key, block);
    kind.count = 1;
    kind.bytes = size;
    kind.oldest_ms = kind.newest_ms = origin.time_ms;
  }

  void send() {
    uint32_t count = 0;
    bool told = false;
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      if (kinds_[slot].count == 0) continue;
      batch_[count++] = &kinds_[slot];
      if (count == kBatch) send_batch(count), count = 0, told = true;
    }
    // Also sent for an empty heap: this record tells readers what was requested.
    if (count > 0 || !told) send_batch(count);
    types_.send();
  }

 private:
  static constexpr unsigned kSlotBits = 18;
  static constexpr std::size_t kSlots = 1u << kSlotBits;
  static constexpr uint32_t kBatch = 2048;
  static constexpr unsigned kKeyWords = 4;

  struct Key {
    uint64_t size;
    uint32_t arena;
    uint32_t shape;
    uint64_t words[kKeyWords];
    uint64_t type;  // of a Python object
    uint32_t node;
    uint32_t thread;
    uint64_t requested;

    bool operator==(const Key& other) const {
      bool same = size == other.size && arena == other.arena && shape == other.shape &&
                  node == other.node && thread == other.thread && requested == other.requested &&
                  type == other.type;
      for (unsigned i = 0; i < kKeyWords; ++i) same = same && words[i] == other.words[i];
      return same;
    }
    uint64_t hash() const {
      uint64_t value = size ^ uint64_t { arena } << 40 ^ uint64_t { shape } << 56;
      for (uint64_t part : words) value = mixed(value, part);
      if (type != 0) value = mixed(value, type);
      if (thread != wire::kNotRecorded)
        value = mixed(mixed(value, uint64_t{node} << 32 | thread), requested);
      return value * kGolden >> (64 - kSlotBits);
    }
  };
  struct Kind {
    Key key;
    uint64_t count;
    uint64_t bytes;
    uint64_t example;
    uint64_t oldest_ms;
    uint64_t newest_ms;
  };

  Key key_of(uint64_t block, const Origin& origin) {
    Key key{};
    key.node = origin.node;
    key.thread = origin.thread;
    key.requested = origin.requested;
    key.size = blocks_.end_of(block) - block;
    if (region_ == nullptr || !region_->contains_start(block)) region_ = blocks_.region_of(block);
    key.arena = region_ != nullptr ? region_->arena : 0;
    if (python_ != nullptr) key.type = python_->note({block, block + key.size});
    if (key.type != 0) return key;
    key.shape = shape_of(space_, blocks_, block, key.size, 0);
    for (unsigned i = 0; i < kKeyWords && heaps::kWord * (i + 1) <= key.size; ++i)
      key.words[i] = words_.of(heaps::word(block + heaps::kWord * i), i == 0);
    return key;
  }

  Kind& enter(Key key, uint64_t block) {
    Kind& kind = slot_of(key);
    if (kind.count == 0) {
      kind.key = key;
      kind.example = block;
      ++used_;
      if (key.size >= heaps::kWord) types_.note(heaps::word(block));
    }
    return kind;
  }

  // When the table fills up, kinds differ only by size; when even those are too many, all blocks
  // are of one kind.
  Kind& slot_of(Key& key) {
    if (used_ > kSlots / 4 * 3)
      key = {used_ < kSlots - 1 ? key.size : 0, 0, 0, {}, 0, 0, wire::kNotRecorded, 0};
    std::size_t slot = key.hash();
    while (kinds_[slot].count != 0 && !(kinds_[slot].key == key)) slot = (slot + 1) % kSlots;
    return kinds_[slot];
  }

  void send_batch(uint32_t count) {
    Record record(wire::kKinds);
    record.u32(count).u32(wire::kLeadWords);
    column(record, count, [](const Kind& kind) { return kind.count; });
    column(record, count, [](const Kind& kind) { return kind.bytes; });
    column(record, count, [](const Kind& kind) { return kind.key.size; });
    column(record, count, [](const Kind& kind) { return kind.example; });
    column(record, count, [](const Kind& kind) { return kind.key.arena; });
    column(record, count, [](const Kind& kind) { return kind.key.shape; });
    for (uint32_t i = 0; i < count; ++i) {
      for (unsigned w = 0; w < wire::kLeadWords; ++w) {
        bool inside = heaps::kWord * (w + 1) <= batch_[i]->key.size;
        record.u64(inside ? lead_word(space_, batch_[i]->example + heaps::kWord * w) : 0);
      }
    }
    record.send();
    if (python_ != nullptr) send_types(count);
    if (origins_.present()) send_origins(count);
  }

  void send_types(uint32_t count) const {
    Record record(wire::kKindObjects);
    record.u32(count);
    column(record, count, [](const Kind& kind) { return kind.key.type; });
    record.send();
  }

  void send_origins(uint32_t count) const {
    Record record(wire::kKindOrigins);
    record.u32(count);
    column(record, count, [](const Kind& kind) { return kind.key.node; });
    column(record, count, [](const Kind& kind) { return kind.key.thread; });
    column(record, count, [](const Kind& kind) { return kind.oldest_ms; });
    column(record, count, [](const Kind& kind) { return kind.newest_ms; });
    column(record, count, [](const Kind& kind) { return kind.key.requested; });
    record.send();
  }

  template <typename ValueOf>
  void column(Record& record, uint32_t count, ValueOf value_of) const {
    for (uint32_t i = 0; i < count; ++i) {
      auto value = value_of(*batch_[i]);
      record.raw(&value, sizeof value);
    }
  }

  const Space& space_;
  const BlockMap& blocks_;
  Origins& origins_;
  ObjectTypes* python_;
  TypeNames types_;
  WordKinds words_;
  Kind* kinds_;
  std::size_t used_ = 0;
  uint64_t last_single_ = 0;               // a large block may hold many references in succession
  const heaps::Region* region_ = nullptr;  // of the previous block
  const Kind* batch_[kBatch];
};

}  // namespace reachscan::sweeper
