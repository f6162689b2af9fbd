// Lays out extents, slabs, large blocks and a thread's cache as jemalloc does.
#include "jemalloc_image.hpp"

#include "arch/thread_local.hpp"
#include "heaps/images.hpp"
#include "heaps/jemalloc/metadata.hpp"

namespace reachscan::tests {

using heaps::kPage;
using namespace heaps::jemalloc;

namespace {

constexpr uint64_t kMetadataBytes = 16 << 20;
constexpr uint64_t kHeapBytes = 16 << 20;
constexpr uint64_t kRoot = Jemalloc::kData + 0x780;

}  // namespace

Jemalloc::Jemalloc(const Tree& tree) : tree_(tree) {
  memory.map(kData, 4 << 20, kReadWrite, abi::kFileBacked, kFile);
  memory.map(kMetadata, kMetadataBytes);
  memory.map(kHeap, kHeapBytes);
  memory.map(kStack, 16 * kPage);
  memory.put(kMetadata, kMetadataBytes);
  leaf = allot(tree.leaf_bytes());
  slot_ = kRoot + 8 * (kHeap >> tree.root_shift());
  if (tree.levels == 3) {
    uint64_t node = allot(tree.node_bytes());
    memory.put(slot_, node);
    slot_ = node + 8 * (kHeap >> tree.leaf_shift() & (tree.slots() - 1));
  }
  memory.put(slot_, leaf);
}

void Jemalloc::leaf_without_blocks() {
  constexpr uint64_t kBytes = 2 << 20;
  uint64_t start = kHeap - kBytes, below = allot(tree_.leaf_bytes()),
           at = allot(tree_.extent_bytes());
  memory.map(start, kBytes);
  memory.put(slot_ - 8, below);
  memory.put(at, uint64_t{1} << kFrom53.state_shift | uint64_t{kNoClass} << kFrom53.class_shift);
  memory.put(at + kAddressField, start);
  memory.put(at + kSizeField, kBytes);
  memory.put(tree_.entry_at(below, start), at);
  memory.put(tree_.entry_at(below, kHeap - tree_.page()), at);
}

uint64_t Jemalloc::allot(uint64_t bytes) {
  uint64_t at = heaps::align_up(next_metadata_, 128);
  next_metadata_ = at + bytes;
  memory.put(kMetadata + kRestField + kAddressField, next_metadata_);
  memory.put(kMetadata + kRestField + kSizeField, kMetadata + kMetadataBytes - next_metadata_);
  return at;
}

uint64_t Jemalloc::extent(uint64_t pages, uint32_t size_class, bool is_slab, bool is_active) {
  uint64_t at = allot(tree_.extent_bytes()), start = next_page_;
  next_page_ += pages * tree_.page();
  memory.put(at, uint64_t{is_slab} << kSlabBit | uint64_t{!is_active} << kFrom53.state_shift |
                     uint64_t{size_class} << kFrom53.class_shift);
  memory.put(at + kAddressField, start);
  memory.put(at + kSizeField, pages * tree_.page());
  for (uint64_t page = start; page < next_page_; page += tree_.page()) {
    uint64_t entry = tree_.entry_at(leaf, page);
    if (tree_.levels == 2) {
      memory.put(entry, uint64_t{size_class} << kAddressBits | at | uint64_t{is_slab});
    } else {
      memory.put(entry, at);
      memory.put(entry + 8, size_class << 5 | uint32_t{is_slab});
    }
    uint64_t last = next_page_ - tree_.page();
    if (!is_slab && page + tree_.page() < last) page = last - tree_.page();
  }
  return at;
}

uint64_t Jemalloc::slab(uint32_t size_class, uint64_t pages, const std::vector<unsigned>& free) {
  uint64_t at = extent(pages, size_class, true, true), start = heaps::word(at + kAddressField);
  uint64_t size = size_of_class(size_class, Quantum::k16);
  for (uint64_t slot = 0; slot < pages * tree_.page() / size; ++slot)
    blocks[start + slot * size] = size;
  for (unsigned slot : free) {
    uint64_t word = at + kSlotsField + 8 * (slot / 64);
    memory.put(word, heaps::word(word) | 1ull << slot % 64);
    blocks.erase(start + slot * size);
  }
  memory.put(at, heaps::word(at) | uint64_t{free.size()} << kFrom53.free_shift);
  return at;
}

uint64_t Jemalloc::large(uint32_t size_class, uint64_t offset, uint64_t less_pages) {
  uint64_t size = size_of_class(size_class, Quantum::k16) - less_pages * tree_.page();
  uint64_t at = extent(size / tree_.page() + 1, size_class, false, true);
  uint64_t block = heaps::word(at + kAddressField) + offset;
  memory.put(at + kAddressField, block);
  blocks[block] = size;
  return at;
}

uint64_t Jemalloc::unused(uint64_t pages) { return extent(pages, kNoClass, false, false); }

abi::Thread Jemalloc::thread(uint32_t size_class, const std::vector<uint64_t>& cached,
                             uint64_t stacks) {
  uint64_t thread_pointer = kStack + 12 * kPage;
  fill_cache(thread_pointer - 0xa00, size_class, cached, stacks);
  return {0x1000, kStack + kPage, thread_pointer};
}

// In the order of addresses: the small library's block of one thread, the allocator's of the other.
abi::Thread Jemalloc::late_thread(unsigned number, uint32_t size_class,
                                  const std::vector<uint64_t>& cached) {
  constexpr uint64_t kSmall = 64, kBytes = 0x600, kStep = kSmall + kBytes;
  if (!memory.space().readable(kLateBlocks, kPage)) memory.map(kLateBlocks, kPage);
  memory.store<uint32_t>(kData, heaps::kElfMagic);
  memory.put(kData + offsetof(heaps::Ehdr, e_phoff), sizeof(heaps::Ehdr));
  memory.store<uint16_t>(kData + offsetof(heaps::Ehdr, e_phnum), 1);
  memory.store<uint32_t>(kData + sizeof(heaps::Ehdr), PT_TLS);
  memory.put(kData + sizeof(heaps::Ehdr) + offsetof(heaps::Phdr, p_memsz), kBytes);
  uint64_t thread_pointer = kStack + (12 + number) * kPage, table = thread_pointer + 0x800;
  uint64_t block = kLateBlocks + (1 - number) * kStep + kSmall;
  memory.put(thread_pointer + arch::kTlsTableField, table);
  memory.put(table - 16, 3);
  memory.put(table + 16, kLateBlocks + number * kStep);
  memory.put(table + 32, block);
  memory.put(table + 48, ~uint64_t{0});
  fill_cache(block + 0x80, size_class, cached, 0);
  return {0x1000, kStack + kPage, thread_pointer};
}

void Jemalloc::fill_cache(uint64_t slow, uint32_t size_class, const std::vector<uint64_t>& cached,
                          uint64_t stacks) {
  constexpr unsigned kBins = 41;
  uint64_t cache = slow + 0x100, arena = allot(64);
  memory.put(cache, slow);
  if (has_statistics) memory.put(slow + 32, cache + 8);
  memory.put(slow + 40, arena);
  memory.put(slow + 0xe8, cache);
  for (unsigned bin = 0; bin < kBins; ++bin) {
    uint64_t count = bin == size_class ? cached.size() : 0;
    uint64_t end = (stacks == 0 ? allot(64) : stacks + 64 * bin) + 64;
    for (std::size_t i = 0; i < count; ++i) memory.put(end - 8 * (i + 1), cached[i]);
    memory.put(cache + 8 + 24 * bin, end - 8 * count);
    memory.store<uint16_t>(cache + 8 + 24 * bin + 20, static_cast<uint16_t>(end));
  }
  for (uint64_t block : cached) blocks.erase(block);
  blocks.erase(stacks);
}

}  // namespace reachscan::tests
