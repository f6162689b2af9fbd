// Two threads take pieces of the mapping, read each into a buffer that stays in the processor's
// cache, and pass on the pages that are not zero.
#include "helper/core/dumped_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "arch/address_space.hpp"
#include "helper/stop/side_thread.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;

constexpr std::uint64_t kPieceBytes = 1 << 20;
// To read less takes no longer than to start a thread.
constexpr std::size_t kMinSharedPieces = 8;

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

bool is_zero(const char* page) {
  static const std::vector<char> zeros(kPage);
  return std::memcmp(page, zeros.data(), kPage) == 0;
}

}  // namespace

DumpedMemory::DumpedMemory(const CoreFile& core, const CoreMapping& mapping, const Memory* copy)
    : core_(core),
      mapping_(mapping),
      copy_(copy),
      used_((mapping.bytes + kPieceBytes - 1) / kPieceBytes) {}

std::vector<AddressRange> DumpedMemory::read() {
  const std::function<void()> work = [this] { take_pieces(); };
  {
    std::optional<SideThread> other;
    if (used_.size() >= kMinSharedPieces) other.emplace(work);
    work();
  }
  if (failure_) std::rethrow_exception(failure_);
  std::vector<AddressRange> all;
  for (const std::vector<AddressRange>& piece : used_)
    for (const AddressRange& run : piece) append(all, run.start, run.end);
  return all;
}

// Called on each thread.
void DumpedMemory::take_pieces() {
  try {
    Buffers buffers;
    for (;;) {
      std::unique_lock guard(lock_);
      if (failure_ || taken_ == used_.size()) return;
      std::size_t piece = taken_++;
      guard.unlock();
      std::uint64_t start = piece * kPieceBytes;
      read_piece(start, std::min(start + kPieceBytes, mapping_.bytes), buffers, used_[piece]);
    }
  } catch (...) {
    std::lock_guard guard(lock_);
    failure_ = std::current_exception();
  }
}

void DumpedMemory::read_piece(std::uint64_t start, std::uint64_t end, Buffers& buffers,
                              std::vector<AddressRange>& used) const {
  auto offset = static_cast<off_t>(mapping_.offset + start);
  off_t data = lseek(core_.descriptor(), offset, SEEK_DATA);
  if (data < 0) return;  // zeros up to its end
  start += static_cast<std::uint64_t>(data - offset) & ~(kPage - 1);
  if (start >= end) return;
  std::uint64_t length = end - start;
  buffers.dumped.resize(whole_pages(length));
  std::fill(buffers.dumped.begin() + static_cast<std::ptrdiff_t>(length), buffers.dumped.end(), 0);
  core_.read_file(mapping_.offset + start, buffers.dumped.data(), length);
  take_pages(start, buffers.dumped.size(), buffers, used);
}

void DumpedMemory::take_pages(std::uint64_t start, std::uint64_t length, Buffers& buffers,
                              std::vector<AddressRange>& used) const {
  std::vector<AddressRange> runs;
  const char* dumped = buffers.dumped.data();
  for (std::uint64_t at = 0; at < length; at += kPage)
    if (!is_zero(dumped + at)) append(runs, at, at + kPage);
  std::uint64_t address = mapping_.entry.start + start;
  for (const AddressRange& run : runs) {
    if (copy_ != nullptr)
      copy_->fill(wire::Step::kBuildCopy, address + run.start, dumped + run.start,
                  run.end - run.start);
    for (std::uint64_t at = run.start; at < run.end; at += kPage)
      if (!is_original(start + at, dumped + at, buffers))
        append(used, address + at, address + at + kPage);
  }
}

// Compares only what the program may have protected.
bool DumpedMemory::is_original(std::uint64_t at, const char* page, Buffers& buffers) const {
  const MapEntry& entry = mapping_.entry;
  if (mapping_.original == nullptr || (entry.perms & wire::kWrite) != 0) return false;
  buffers.original.resize(kPage);
  return mapping_.original->try_read(entry.offset + at, buffers.original.data(), kPage) &&
         std::memcmp(page, buffers.original.data(), kPage) == 0;
}

}  // namespace reachscan::helper
