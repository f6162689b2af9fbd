// Lays out what mallocng records about its slots, as musl does.
#include "musl_image.hpp"

#include <algorithm>

namespace reachscan::tests {

using heaps::kPage;
using namespace heaps::musl;

namespace {

constexpr uint64_t kSecret = 0x5ec2e7c0ffee1234;
constexpr uint64_t kNoClass = 63;

}  // namespace

Musl::Musl() {
  memory.map(kData, 4 * kPage, kReadWrite, abi::kFileBacked, kFile);
  memory.map(kArea, kPage);
  memory.map(kHeap, kHeapBytes);
  memory.put(kContext + kSecretField, kSecret);
  memory.put(kContext + kInitDoneField, 1);
  memory.put(kContext + kFirstAreaField, kArea);
  memory.put(kArea, kSecret);
  memory.put(kArea + kSlotCountField, kDescriptorsInArea);
}

uint64_t Musl::descriptor(uint64_t start, uint64_t size_class, uint32_t slots, uint64_t pages,
                          bool freeable) {
  uint64_t meta = next_meta_;
  next_meta_ += kDescriptorBytes;
  memory.put(meta + 16, start);
  memory.store(meta + 28, static_cast<uint32_t>((uint64_t{1} << slots) - 1));  // all are free
  memory.put(meta + 32, (slots - 1) | uint64_t{freeable} << 5 | size_class << 6 | pages << 12);
  memory.put(start, meta);
  return meta;
}

uint64_t Musl::mapped(uint64_t size_class, uint32_t slots, uint64_t pages) {
  uint64_t start = next_page_;
  next_page_ += pages * kPage;
  return descriptor(start, size_class, slots, pages, true);
}

uint64_t Musl::nested(uint64_t outer, uint32_t slot, uint64_t size_class, uint32_t slots) {
  Group group = read_group(outer);
  uint64_t start = group.slot(slot);
  take(outer, slot);
  head(start, slot, start - group.slot(0), kNested);
  return descriptor(start, size_class, slots, 0, true);
}

uint64_t Musl::donated(uint64_t at, uint64_t size_class) {
  return descriptor(at, size_class, 1, 0, false);
}

uint64_t Musl::large(uint64_t pages, uint64_t bytes, uint64_t moved) {
  uint64_t meta = mapped(kNoClass, 1, pages);
  block(meta, 0, bytes, moved);
  return meta;
}

uint64_t Musl::block(uint64_t meta, uint32_t slot, uint64_t bytes, uint64_t moved) {
  Group group = read_group(meta);
  uint64_t start = group.slot(slot), end = group.slot(slot + 1) - kHeaderBytes;
  uint64_t at = start + moved, reserved = end - bytes - at;
  take(meta, slot);
  if (moved != 0) {
    memory.store(start - 3, kHeaderOfMoved);
    memory.store(start - 2, static_cast<uint16_t>(moved / kUnit));
  }
  if (reserved >= kInTrailer) memory.store(end - 4, static_cast<uint32_t>(reserved));
  head(at, slot, at - group.slot(0), std::min<uint64_t>(reserved, kInTrailer));
  blocks[at] = bytes;
  return at;
}

void Musl::take(uint64_t meta, uint32_t slot) {
  memory.store(meta + 28, heaps::load<uint32_t>(meta + 28) & ~(1u << slot));
}

void Musl::head(uint64_t block, uint32_t slot, uint64_t distance, uint64_t reserved) {
  uint64_t units = distance / kUnit;
  bool far = units > 0xffff;
  memory.store(block - 4, static_cast<uint8_t>(far));
  memory.store(block - 3, static_cast<uint8_t>(reserved << 5 | slot));
  memory.store(block - 2, static_cast<uint16_t>(far ? 0 : units));
  if (far) memory.store(block - 8, static_cast<uint32_t>(units));
}

}  // namespace reachscan::tests
