// Lays out what Scudo records about its blocks, as it does.
#include "scudo_image.hpp"

namespace reachscan::tests {

using heaps::kPage;
using namespace heaps::scudo;

namespace {

constexpr uint64_t kCache = Scudo::kClassesAt + kClassesBytes;

}  // namespace

Scudo::Scudo(const Layout& layout, Sum sum) : layout_(layout), sum_(sum) {
  memory.map(kData, 16 * kPage, kReadWrite, abi::kFileBacked, kFile);
  memory.map(kLarge, 256 * kPage);
  memory.store(kObject, kCookie);
  memory.store(kCache + kMaxEntriesField, kCacheEntries);
  for (unsigned number = 0; number < kClasses; ++number) {
    unsigned part = number * 7 % kClasses;
    starts_[number] = kHeap + part * kClassReach + (number % 16 + 1) * kPage;
    memory.map(starts_[number], kMapped);
    memory.put(kClassesAt + number * kClassBytes + layout.start, starts_[number]);
    memory.put(kClassesAt + number * kClassBytes + layout.mapped, kMapped);
  }
}

uint64_t Scudo::slot(unsigned number) {
  uint64_t carved = kClassesAt + number * kClassBytes + layout_.carved;
  uint64_t at = starts_[number] + heaps::word(carved);
  count(carved);
  memory.put(carved, heaps::word(carved) - 1 + size_of_class(number));
  return at;
}

void Scudo::count(uint64_t at) { memory.put(at, heaps::word(at) + 1); }

void Scudo::head(uint64_t block, unsigned number, State state, uint64_t size, uint64_t shift) {
  uint64_t bits = number | uint64_t{state} << 8 | size << 12 | shift / 16 << 32;
  Checksums checksums(kCookie);
  uint64_t sum = sum_ == Sum::kCrc ? checksums.crc(block, bits) : checksums.sum(block, bits);
  memory.put(block - kHeaderBytes, bits | sum << 48);
}

uint64_t Scudo::block(unsigned number, uint64_t bytes, uint64_t shift) {
  uint64_t at = slot(number), block = at + kHeaderBytes + shift;
  if (shift != 0) {
    memory.store(at, kAlignedMarker);
    memory.store(at + 4, static_cast<uint32_t>(shift));
  }
  head(block, number, kAllocated, bytes, shift);
  blocks[block] = bytes;
  return block;
}

uint64_t Scudo::freed(unsigned number, State state) {
  uint64_t at = block(number, 8);
  head(at, number, state, 8, 0);
  blocks.erase(at);
  return at;
}

uint64_t Scudo::at_end(unsigned number) {
  return block(number, 0, size_of_class(number) - kHeaderBytes);
}

uint64_t Scudo::quarantine(const std::vector<uint64_t>& held) {
  constexpr unsigned kClassOfBatch = 28;
  constexpr uint64_t kBatchBytes = 8176;
  uint64_t batch = block(kClassOfBatch, kBatchBytes);
  memory.store(batch + 16, static_cast<uint32_t>(held.size()));
  for (std::size_t i = 0; i < held.size(); ++i) memory.put(batch + 24 + 8 * i, held[i]);
  blocks.erase(batch);
  return batch;
}

uint64_t Scudo::large(uint64_t bytes) {
  uint64_t mapping = heaps::align_up(bytes + Large::kBytes + kHeaderBytes, kPage);
  uint64_t start = next_large_, end = start + mapping;
  next_large_ = end;
  uint64_t block = (end - bytes) & ~uint64_t{15}, at = block - kHeaderBytes - Large::kBytes;
  memory.put(at, last_large_);
  memory.put(at + 16, start);
  memory.put(at + 24, mapping);
  head(block, 0, kAllocated, end - bytes - block, 0);
  memory.put(last_large_ == 0 ? list() + 8 : last_large_ + 8, at);
  memory.put(list() + 16, at);
  count(list());
  count(kCache + layout_.counts);
  last_large_ = at;
  blocks[block] = bytes;
  return block;
}

uint64_t Scudo::cached(uint64_t pages) {
  uint64_t start = next_large_;
  next_large_ += pages * kPage;
  uint64_t entry = kCache + layout_.entries + (kCacheEntries - 1) * kEntryBytes;
  memory.put(entry, start);
  memory.put(entry + 8, pages * kPage);
  return start;
}

void Scudo::pool(uint16_t version) {
  uint64_t pages = 2 * kGuardedSlots + version;
  memory.map(kPoolPages, pages * kPage);
  memory.map(kRecords, kPage);
  memory.store(kPool, heaps::gwp_asan::Pool::kMark);
  memory.store(kPool + 4, version);
  memory.put(kPool + 8, kGuardedSlots);
  memory.put(kPool + 16, kPoolPages);
  memory.put(kPool + 24, kPoolPages + pages * kPage);
  memory.put(kPool + 32, kPage);
  memory.put(kPool + 144, kRecords);
}

uint64_t Scudo::guarded(uint64_t slot, uint64_t bytes, bool freed) {
  uint64_t page = kPoolPages + (2 * slot + 1) * kPage,
           record = kRecords + slot * heaps::gwp_asan::Record::kBytes;
  uint64_t block = page + kPage - heaps::align_up(bytes, 16);
  memory.put(record, block);
  memory.put(record + 8, bytes);
  memory.store(record + 560, static_cast<uint8_t>(freed));
  if (!freed) blocks[block] = bytes;
  return block;
}

}  // namespace reachscan::tests
