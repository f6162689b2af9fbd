// Rereads the pages of changing heaps until two consecutive readings agree.
#include "helper/capture/settle.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "arch/address_space.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;
constexpr std::uint64_t kBatchBytes = 2 << 20;
constexpr std::size_t kBatchPieces = 512;
// A program that is ever idle is idle within that time: between two requests, or when it loses its
// processor.
constexpr auto kLimit = std::chrono::milliseconds(50);

std::vector<AddressRange> unite(std::vector<AddressRange> one,
                                const std::vector<AddressRange>& other) {
  one.insert(one.end(), other.begin(), other.end());
  std::sort(one.begin(), one.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.start < b.start; });
  std::vector<AddressRange> united;
  for (const AddressRange& stretch : one) {
    bool apart = united.empty() || united.back().end < stretch.start;
    if (apart) united.push_back(stretch);
    united.back().end = std::max(united.back().end, stretch.end);
  }
  return united;
}

}  // namespace

HeapStabilizer::HeapStabilizer(pid_t pid) : pid_(pid), buffer_(kBatchBytes) {}

void HeapStabilizer::settle(MemoryCopy& copy) {
  std::vector<AddressRange> known, all;
  copy.follow();
  std::vector<AddressRange> changed = reread(pieces_of(copy, known));
  copy.follow();
  std::vector<Piece> pieces = pieces_of(copy, all);
  std::vector<AddressRange> restless = unite(unite(changed, last_changed_), subtract(all, known));
  last_changed_ = std::move(changed);
  std::vector<AddressRange> heaps = heaps_of(copy.mappings(), pieces);
  // These first, before they grow further.
  std::vector<Piece> of_heaps = those_within(pieces, intersect(restless, heaps));
  Clock::time_point end = Clock::now() + kLimit;
  while (!reread(of_heaps).empty() && Clock::now() < end) {
  }
  reread(those_within(pieces, subtract(restless, heaps)));
}

// Where the allocator keeps its chunks and its lists: the program break, data of modules, and
// mappings that start like a thread arena's heap.
std::vector<AddressRange> HeapStabilizer::heaps_of(const std::vector<MapEntry>& mappings,
                                                   const std::vector<Piece>& pieces) {
  std::vector<AddressRange> heaps;
  auto first = pieces.begin();
  for (const MapEntry& entry : mappings) {
    while (first != pieces.end() && first->address < entry.start) ++first;
    bool begins = first != pieces.end() && first->address == entry.start;
    if (entry.inode != 0 || entry.path == "[heap]" || (begins && begins_thread_heap(*first)))
      append(heaps, entry.start, entry.end);
  }
  return heaps;
}

// struct heap_info of glibc: the arena, the previous heap, the heap's size and its accessible size.
bool HeapStabilizer::begins_thread_heap(const Piece& piece) {
  constexpr std::uint64_t kLargest = 64 << 20;
  std::uint64_t info[4];
  std::memcpy(info, piece.copy, sizeof info);
  return piece.address % kLargest == 0 && info[0] != 0 && info[0] % 16 == 0 &&
         info[2] % kPage == 0 && info[2] - 1 < kLargest && info[3] >= info[2];
}

// Ascending, and none larger than one read.
std::vector<HeapStabilizer::Piece> HeapStabilizer::pieces_of(const MemoryCopy& copy,
                                                             std::vector<AddressRange>& pages) {
  std::vector<Piece> pieces;
  copy.each_written([&](std::uint64_t start, char* bytes, std::uint64_t length) {
    append(pages, start, start + length);
    for (std::uint64_t at = 0; at < length; at += kBatchBytes)
      pieces.push_back({start + at, bytes + at, std::min(kBatchBytes, length - at)});
  });
  return pieces;
}

std::vector<HeapStabilizer::Piece> HeapStabilizer::those_within(
    const std::vector<Piece>& all, const std::vector<AddressRange>& pages) {
  std::vector<Piece> pieces;
  auto next = all.begin();
  for (const AddressRange& stretch : pages) {
    while (next != all.end() && next->address + next->length <= stretch.start) ++next;
    for (auto at = next; at != all.end() && at->address < stretch.end; ++at) {
      std::uint64_t start = std::max(stretch.start, at->address);
      std::uint64_t end = std::min(stretch.end, at->address + at->length);
      pieces.push_back({start, at->copy + (start - at->address), end - start});
    }
  }
  return pieces;
}

// Updates pieces in the copy and returns what had changed.
std::vector<AddressRange> HeapStabilizer::reread(const std::vector<Piece>& pieces) {
  std::vector<AddressRange> changed;
  for (std::size_t first = 0, last = 0; first < pieces.size(); first = last) {
    std::uint64_t bytes = 0;
    for (; last < pieces.size() && last - first < kBatchPieces; ++last) {
      if (bytes + pieces[last].length > kBatchBytes) break;
      bytes += pieces[last].length;
    }
    if (update(&pieces[first], last - first, bytes, changed)) continue;
    for (std::size_t i = first; i < last; ++i) update(&pieces[i], 1, pieces[i].length, changed);
  }
  return changed;
}

// Returns false if some cannot be read: the process may have unmapped some.
bool HeapStabilizer::update(const Piece* pieces, std::size_t count, std::uint64_t bytes,
                            std::vector<AddressRange>& changed) {
  remote_.clear();
  for (std::size_t i = 0; i < count; ++i)
    remote_.push_back(
        {reinterpret_cast<void*>(pieces[i].address), static_cast<std::size_t>(pieces[i].length)});
  iovec local{buffer_.data(), static_cast<std::size_t>(bytes)};
  if (process_vm_readv(pid_, &local, 1, remote_.data(), count, 0) != static_cast<ssize_t>(bytes))
    return false;
  const char* now = buffer_.data();
  for (std::size_t i = 0; i < count; ++i) {
    for (std::uint64_t at = 0; at < pieces[i].length; at += kPage, now += kPage) {
      if (std::memcmp(now, pieces[i].copy + at, kPage) == 0) continue;
      std::memcpy(pieces[i].copy + at, now, kPage);
      append(changed, pieces[i].address + at, pieces[i].address + at + kPage);
    }
  }
  return true;
}

}  // namespace reachscan::helper
