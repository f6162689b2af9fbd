// Sends leaks in batches of columns.
#pragma once

#include "sweeper/blob/emit.hpp"
#include "sweeper/blocks/digest.hpp"
#include "sweeper/blocks/masked.hpp"
#include "sweeper/blocks/origins.hpp"
#include "sweeper/blocks/shapes.hpp"
#include "sweeper/blocks/types.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/python/object_types.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::List;
using heaps::Totals;

class LeakWriter {
 public:
  // `python` is null if Python objects are treated like all other blocks.
  LeakWriter(const heaps::Space& space, const BlockMap& blocks, Origins& origins,
             ObjectTypes* python)
      : space_(space), blocks_(blocks), origins_(origins), types_(space), python_(python) {}

  // `slot` is the word of the parent that points to the block, 0 for a direct leak. Returns the
  // leak's position in the stream.
  uint32_t add(uint64_t address, uint32_t parent, uint64_t slot) {
    if (count_ == kBatch) flush();
    uint64_t size = blocks_.end_of(address) - address;
    address_[count_] = address;
    size_[count_] = size;
    parent_[count_] = parent;
    for (unsigned i = 0; i < wire::kLeadWords; ++i)
      words_[count_][i] =
          heaps::kWord * (i + 1) <= size ? lead_word(space_, address + heaps::kWord * i) : 0;
    if (size >= heaps::kWord) types_.note(words_[count_][0]);
    shape_[count_] = shape_of(space_, blocks_, address, size, slot);
    if (control()->digests != 0) digest_[count_] = digest_of(space_, address, size);
    if (python_ != nullptr) object_[count_] = python_->note({address, address + size});
    if (origins_.present()) origin_[count_] = origins_.of(address, size);
    ++count_;
    leaks.add(size);
    if (parent == wire::kDirect) {
      direct.add(size);
      add_contents(address, size);
    }
    return static_cast<uint32_t>(leaks.blocks - 1);
  }

  void finish() {
    flush();
    types_.send();
    if (python_ != nullptr) python_->send();
  }

  Totals leaks;
  Totals direct;

 private:
  static constexpr std::size_t kBatch = 2048;
  static constexpr std::size_t kMaxContents = 4096;  // direct leaks sent with their full contents

  void flush() {
    if (count_ == 0) return;
    auto count = static_cast<uint32_t>(count_);
    Record record(wire::kLeaks);
    record.u32(count).u32(wire::kLeadWords);
    record.raw(address_, count_ * sizeof address_[0]).raw(size_, count_ * sizeof size_[0]);
    record.raw(parent_, count_ * sizeof parent_[0]).raw(words_, count_ * sizeof words_[0]);
    record.send();
    Record(wire::kShapes).u32(count).raw(shape_, count_ * sizeof shape_[0]).send();
    if (control()->digests != 0)
      Record(wire::kDigests).u32(count).raw(digest_, count_ * sizeof digest_[0]).send();
    if (python_ != nullptr)
      Record(wire::kObjects).u32(count).raw(object_, count_ * sizeof object_[0]).send();
    if (origins_.present()) send_origins(count);
    count_ = 0;
  }

  void send_origins(uint32_t count) const {
    Record record(wire::kOrigins);
    record.u32(count);
    for (uint32_t i = 0; i < count; ++i) record.u32(origin_[i].node);
    for (uint32_t i = 0; i < count; ++i) record.u32(origin_[i].thread);
    for (uint32_t i = 0; i < count; ++i) record.u64(origin_[i].time_ms);
    for (uint32_t i = 0; i < count; ++i) record.u64(origin_[i].requested);
    record.send();
  }

  // Sends only what the leading words do not show already, after the batch that contains the leak.
  void add_contents(uint64_t address, uint64_t size) {
    uint64_t length = control()->contents_bytes < size ? control()->contents_bytes : size;
    if (length <= heaps::kWord * wire::kLeadWords || direct.blocks > kMaxContents) return;
    auto position = static_cast<uint32_t>(leaks.blocks - 1);
    flush();
    Record record(wire::kContents);
    record.u32(1).u32(position).u32(static_cast<uint32_t>(length));
    record.raw(reinterpret_cast<const void*>(address), length);
    record.send();
  }

  const heaps::Space& space_;
  const BlockMap& blocks_;
  Origins& origins_;
  TypeNames types_;
  ObjectTypes* python_;
  std::size_t count_ = 0;
  uint64_t address_[kBatch];
  uint64_t size_[kBatch];
  uint32_t parent_[kBatch];
  uint64_t words_[kBatch][wire::kLeadWords];
  uint8_t shape_[kBatch];
  uint64_t digest_[kBatch];
  uint64_t object_[kBatch];
  Origin origin_[kBatch];
};

}  // namespace reachscan::sweeper
