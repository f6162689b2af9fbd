// Lays out spans, central lists and caches as tcmalloc does.
#include "tcmalloc_image.hpp"

#include <cstring>

namespace reachscan::tests {

using heaps::kPage;
using namespace heaps::tcmalloc;

namespace {

constexpr uint64_t kDataBytes = 2 << 20;
constexpr uint64_t kMetadataBytes = 4 << 20;
constexpr uint64_t kHeapBytes = 16 << 20;
constexpr uint32_t kSizes[] = {0, 8, 16, 32, 48, 64, 1024, 8192, kLargestSmall};
constexpr unsigned kClassCount = sizeof kSizes / sizeof kSizes[0];

}  // namespace

Tcmalloc::Tcmalloc(uint64_t links, uint64_t stride) : links_(links), stride_(stride) {
  memory.map(kData, kDataBytes, kReadWrite, abi::kFileBacked, kFile);
  memory.map(kMetadata, kMetadataBytes);
  memory.map(kHeap, kHeapBytes);
  leaf = allot(kLeafBytes);
  memory.put(kRoot + 8 * (kHeap >> kPageBits >> kLeafBits), leaf);
  for (unsigned number = 0; number < kClassCount; ++number) {
    memory.store<uint32_t>(kClasses + 4 * number, kSizes[number]);
    uint64_t lengths = heaps::align_up(kClasses + 4 * kMaxClasses, 8);
    if (number != 0) memory.put(lengths + 8 * number, (kSizes[number] >> kPageBits) + 1);
    uint64_t at = central(number).at;
    memory.put(at + Central::kClassField, number);
    for (uint64_t header : {at + Central::kFullHeader, at + Central::kOtherHeader}) {
      memory.put(header + kNextField, header);
      memory.put(header + kPreviousField, header);
    }
  }
}

uint32_t Tcmalloc::size_of(unsigned size_class) { return kSizes[size_class]; }

Central Tcmalloc::central(unsigned size_class) const { return {kCentral + size_class * stride_}; }

uint64_t Tcmalloc::allot(uint64_t bytes) {
  uint64_t at = next_metadata_;
  next_metadata_ += heaps::align_up(bytes, 64);
  return at;
}

uint64_t Tcmalloc::span(uint64_t pages, uint32_t bits) {
  uint64_t at = allot(kSpanBytes), first = next_page_ >> kPageBits;
  next_page_ += address_of(pages);
  memory.put(at, first);
  memory.put(at + 8, pages);
  memory.store<uint32_t>(at + 40, bits);
  memory.put(leaf + 8 * (first % kLeafSlots), at);
  memory.put(leaf + 8 * ((first + pages - 1) % kLeafSlots), at);
  return at;
}

void Tcmalloc::link(const std::vector<uint64_t>& list) {
  for (std::size_t i = 0; i < list.size(); ++i)
    memory.put(list[i], i + 1 < list.size() ? list[i + 1] : 0);
}

uint64_t Tcmalloc::small(unsigned size_class, uint64_t pages, const std::vector<unsigned>& free) {
  uint64_t start = next_page_, size = size_of(size_class), count = address_of(pages) / size;
  uint64_t at = span(pages, static_cast<uint32_t>(count - free.size()) | size_class << 16);
  for (uint64_t block = start; block < start + count * size; block += size) blocks[block] = size;
  std::vector<uint64_t> list;
  for (unsigned number : free) {
    list.push_back(start + number * size);
    blocks.erase(list.back());
  }
  link(list);
  memory.put(at + 32, list.empty() ? 0 : list[0]);
  uint64_t header = central(size_class).at + Central::kFullHeader;
  uint64_t next = heaps::word(header + kNextField);
  memory.put(at + kNextField, next);
  memory.put(at + kPreviousField, header);
  memory.put(next + kPreviousField, at);
  memory.put(header + kNextField, at);
  return at;
}

uint64_t Tcmalloc::large(uint64_t pages) {
  blocks[next_page_] = address_of(pages);
  return span(pages, 1);
}

uint64_t Tcmalloc::unused(uint64_t pages) {
  return span(pages, static_cast<uint32_t>(Use::kFree) << 24);
}

void Tcmalloc::chain(unsigned size_class, const std::vector<uint64_t>& list) {
  Central at = central(size_class);
  uint64_t entry = at.at + Central::kChains + 16 * at.chains();
  memory.put(entry, list.front());
  memory.put(entry + 8, list.back());
  memory.store<uint32_t>(at.at + Central::kChainCount, at.chains() + 1);
  link(list);
  for (uint64_t block : list) blocks.erase(block);
}

uint64_t Tcmalloc::empty_cache() {
  uint64_t at = allot(kCacheBytes);
  for (unsigned number = 0; number < kClassCount; ++number)
    memory.store<uint32_t>(at + number * kListBytes + kListSize, size_of(number));
  return at;
}

void Tcmalloc::exited_cache() { memory.put(kExitedCache, empty_cache()); }

uint64_t Tcmalloc::cache(unsigned size_class, const std::vector<uint64_t>& list) {
  uint64_t at = empty_cache();
  uint64_t head = at + size_class * kListBytes;
  memory.put(head, list.front());
  memory.store<uint32_t>(head + kListLength, static_cast<uint32_t>(list.size()));
  link(list);
  for (uint64_t block : list) blocks.erase(block);
  memory.put(at + links_, last_cache_);
  if (last_cache_ != 0) memory.put(last_cache_ + links_ + 8, at);
  memory.put(kFirstCache, at);
  last_cache_ = at;
  return at;
}

void Tcmalloc::object(uint64_t block, const char* type) {
  constexpr uint64_t kFunctions = kFirstCache + 64, kType = kFunctions + 64, kName = kType + 64;
  memory.put(block, kFunctions);
  memory.put(kFunctions - 8, kType);
  memory.put(kType + 8, kName);
  for (std::size_t i = 0; i <= std::strlen(type); ++i) memory.store<char>(kName + i, type[i]);
}

}  // namespace reachscan::tests
