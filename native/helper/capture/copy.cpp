// Reads the target's memory into a file and maps that file into a process of our own.
#include "helper/capture/copy.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "arch/address_space.hpp"
#include "helper/capture/copy_host.hpp"
#include "helper/target/memory_kinds.hpp"
#include "helper/target/memory_limits.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;
using wire::Step;

// Address space for the file, which takes memory only where it is written. With addresses of 32
// bits, what is left of it: so much of a target can be copied.
constexpr std::size_t kMostViewBytes = std::size_t{1} << (sizeof(void*) == 8 ? 46 : 31);
constexpr std::size_t kLeastViewBytes = 64 << 20;
constexpr std::size_t kRangesAtOnce = 512;
// The kernel stops after 2 GiB less a page, which must not look like an unreadable page.
constexpr std::uint64_t kMaxReadBytes = 1 << 30;
constexpr std::uint64_t kMinAbsentBytes = 64 << 10;
// Size of a piece of what was read ahead: small enough for two threads to share the work, large
// enough not to have too many where most of the memory is only reserved.
constexpr std::uint64_t kPieceBytes = 128u << 20;
constexpr std::uint64_t kMaxPieces = 64;
// Reading ahead ends when the target writes no more than this during a round, or no less than in
// the previous one.
constexpr std::uint64_t kConvergedBytes = 1 << 20;
constexpr unsigned kMaxRounds = 8;

// Nearly everything that a program writes is private anonymous memory.
bool is_trackable(const MapEntry& entry) {
  return is_readable(entry) && (entry.perms & wire::kWrite) != 0 && entry.inode == 0 &&
         (entry.perms & wire::kShared) == 0;
}

[[noreturn]] void fail(const std::string& what, int error, pid_t pid) {
  throw Failure(Step::kBuildCopy, Code::kInternal, what + ": " + std::strerror(error), error, pid);
}

}  // namespace

MemoryCopy::MemoryCopy(pid_t pid, const Memory& memory)
    : pid_(pid),
      memory_(memory),
      files_(pid),
      reservations_(pid, PageMap(pid), files_.mappings_of(pid)) {
  require_room_to_copy(pid);
  file_ = memfd_create("reachscan-copy", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(kMostViewBytes)) != 0)
    fail("cannot make a file for the copy", errno, pid);
  for (view_bytes_ = kMostViewBytes;; view_bytes_ /= 2) {
    constexpr int kAccess = PROT_READ | PROT_WRITE, kFlags = MAP_SHARED | MAP_NORESERVE;
    void* view = mmap(nullptr, view_bytes_, kAccess, kFlags, file_, 0);
    view_ = static_cast<char*>(view);
    if (view != MAP_FAILED) break;
    if (view_bytes_ < kLeastViewBytes) fail("cannot map the file for the copy", errno, pid);
  }
}

MemoryCopy::~MemoryCopy() {
  munmap(view_, view_bytes_);
  close(file_);
}

MemoryCopy::Part MemoryCopy::reserve(const AddressRange& range) {
  std::uint64_t length = range.end - range.start;
  if (length > view_bytes_ - used_)
    throw Failure(Step::kReadMemory, Code::kNoMemory, "the target maps too much memory to copy",
                  ENOMEM, pid_, range.start);
  parts_.push_back({range.start, length, used_});
  used_ += length;
  return parts_.back();
}

// Opened again each time: after an exec(), the target has a new one.
void MemoryCopy::open_page_map() {
  page_map_.emplace(pid_, &reservations_);
  if (page_map_->descriptor() < 0)
    throw Failure(Step::kReadMemory, Code::kUnsupportedMethod,
                  "the kernel does not tell which pages of process " + std::to_string(pid_) +
                      " exist, and to read others could harm it",
                  errno, pid_);
}

void MemoryCopy::capture(Clock::time_point deadline) {
  deadline_ = deadline;
  open_page_map();
  mappings_ = files_.mappings_of(pid_);
  std::vector<TrackedArea> areas = areas_read_ahead();
  if (!areas.empty()) tracker_->finish_tracking(areas);
  auto area = areas.begin();
  for (const MapEntry& entry : mappings_) {
    std::uint64_t from = entry.start;
    for (; area != areas.end() && area->start < entry.end; ++area) {
      if (!area->tracked) continue;
      capture_from(entry, from, area->start);
      take_over(*area);
      from = area->end;
    }
    capture_from(entry, from, entry.end);
  }
  captured_ = parts_.size();
  left_out_ += reservations_.maybe_used_since();
  deadline_ = Clock::time_point::max();
}

void MemoryCopy::require_time() const {
  if (Clock::now() >= deadline_)
    throw Failure(Step::kReadMemory, Code::kTimeout, "reading the memory took too long", ETIMEDOUT,
                  pid_);
}

void MemoryCopy::capture_from(MapEntry entry, std::uint64_t start, std::uint64_t end) {
  if (start >= end) return;
  entry.start = start;
  entry.end = end;
  capture_entry(entry);
}

void MemoryCopy::capture_entry(const MapEntry& entry) {
  std::size_t closed = resident_pages_.protected_.size();
  std::vector<AddressRange> written = resident_pages_.add(*page_map_, *page_map_, entry);
  if (entry.backing == Backing::kSecret) {
    for (const AddressRange& stretch : written) left_out_ += stretch.end - stretch.start;
  } else if (is_readable(entry) && changes(entry)) {
    const Part part = reserve({entry.start, entry.end});
    for (const AddressRange& stretch : written) written_.push_back(part.within(stretch));
    read_stretches(part, written);
  } else if (resident_pages_.protected_.size() > closed) {
    const Part part = reserve({entry.start, entry.end});
    for (std::size_t i = closed; i < resident_pages_.protected_.size(); ++i)
      read_any_pages(part, resident_pages_.protected_[i]);
  }
}

void MemoryCopy::read_ahead(WriteTracker& tracker) {
  open_page_map();
  for (const MapEntry& entry : files_.mappings_of(pid_))
    if (is_trackable(entry) && tracker.watch(entry)) capture_entry(entry);
  ahead_ = std::move(parts_);
  parts_.clear();
  resident_pages_ = {};
  tracker_ = &tracker;
  std::uint64_t before = ~0ull;
  for (unsigned round = 0; round < kMaxRounds; ++round) {
    std::uint64_t now = reread_written();
    if (now <= kConvergedBytes || now > before / 2) break;
    before = now;
  }
}

// Returns the number of bytes reread.
std::uint64_t MemoryCopy::reread_written() {
  std::uint64_t bytes = 0;
  std::erase_if(ahead_, [&](const Part& part) {
    std::vector<AddressRange> written;
    // Pages found before an error are protected again without being reported: recapture all.
    if (!tracker_->take_written(part.address, part.address + part.length, written)) return true;
    read_stretches(part, written);
    for (const AddressRange& stretch : written) bytes += stretch.end - stretch.start;
    return false;
  });
  return bytes;
}

// In pieces, so that they can be shared.
std::vector<TrackedArea> MemoryCopy::areas_read_ahead() const {
  std::vector<TrackedArea> areas;
  auto part = ahead_.begin();
  for (const MapEntry& entry : mappings_) {
    if (!is_trackable(entry)) continue;
    while (part != ahead_.end() && part->address + part->length <= entry.start) ++part;
    for (auto of_entry = part; of_entry != ahead_.end() && of_entry->address < entry.end;
         ++of_entry) {
      std::uint64_t piece = std::max(kPieceBytes, of_entry->length / kMaxPieces & ~(kPage - 1));
      std::uint64_t end = std::min(of_entry->address + of_entry->length, entry.end);
      for (std::uint64_t at = std::max(of_entry->address, entry.start); at < end; at += piece)
        areas.push_back({at, std::min(at + piece, end)});
    }
  }
  return areas;
}

// Returns the last part at or before an address; `parts` are ascending.
const MemoryCopy::Part& MemoryCopy::part_before(const std::vector<Part>& parts,
                                                std::uint64_t address) {
  return *std::prev(
      std::upper_bound(parts.begin(), parts.end(), address,
                       [](std::uint64_t value, const Part& part) { return value < part.address; }));
}

// What was read ahead is still valid except for what was written since.
void MemoryCopy::take_over(const TrackedArea& area) {
  const Part& ahead = part_before(ahead_, area.start);
  Part part{area.start, area.end - area.start, ahead.offset + (area.start - ahead.address)};
  bool can_continue = !parts_.empty() &&
                      parts_.back().address + parts_.back().length == part.address &&
                      parts_.back().offset + parts_.back().length == part.offset;
  if (can_continue) {
    parts_.back().length += part.length;
  } else {
    parts_.push_back(part);
  }
  read_stretches(part, area.written);
  for (const AddressRange& stretch : area.absent) {
    absent_.push_back(part.within(stretch));
    if (stretch.end - stretch.start >= kMinAbsentBytes)
      append(resident_pages_.absent, stretch.start, stretch.end);
  }
}

// Clears what was read ahead of memory that is now gone.
void MemoryCopy::clear_absent() {
  for (const Part& part : absent_) clear(part);
}

// Makes it read as zeros.
void MemoryCopy::clear(const Part& part) const {
  if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(part.offset),
                static_cast<off_t>(part.length)) != 0)
    fail("cannot clear a part of the copy", errno, pid_);
}

// Many at a time, since most are single pages.
void MemoryCopy::read_stretches(const Part& part, const std::vector<AddressRange>& stretches) {
  std::vector<iovec> local, remote;
  for (std::size_t first = 0, last = 0; first < stretches.size(); first = last) {
    std::uint64_t bytes = 0;
    require_time();
    local.clear();
    remote.clear();
    for (; last < stretches.size() && last - first < kRangesAtOnce; ++last) {
      std::uint64_t start = stretches[last].start;
      auto length = static_cast<std::size_t>(stretches[last].end - start);
      if (bytes + length > kMaxReadBytes) break;
      local.push_back({view_ + part.offset + (start - part.address), length});
      remote.push_back({reinterpret_cast<void*>(start), length});
      bytes += length;
    }
    if (last == first) {  // a long one
      read_pages(part, stretches[last++]);
      continue;
    }
    ssize_t got =
        process_vm_readv(pid_, local.data(), local.size(), remote.data(), remote.size(), 0);
    if (got == static_cast<ssize_t>(bytes)) continue;
    for (std::size_t i = first; i < last; ++i) read_pages(part, stretches[i]);
  }
}

// Unreadable pages (guard pages, truncated files) stay zero.
void MemoryCopy::read_pages(const Part& part, const AddressRange& stretch) {
  for (std::uint64_t at = stretch.start; at < stretch.end;) {
    require_time();
    auto asked = static_cast<std::size_t>(std::min(stretch.end - at, kMaxReadBytes));
    iovec local{view_ + part.offset + (at - part.address), asked};
    iovec remote{reinterpret_cast<void*>(at), asked};
    ssize_t length = process_vm_readv(pid_, &local, 1, &remote, 1, 0);
    std::uint64_t got = length > 0 ? static_cast<std::uint64_t>(length) & ~(kPage - 1) : 0;
    at += got;
    if (got < asked) at += kPage;  // skip the page that stopped it
  }
}

// Whatever the target itself may do there.
void MemoryCopy::read_any_pages(const Part& part, const AddressRange& stretch) const {
  char* to = view_ + part.offset + (stretch.start - part.address);
  std::uint64_t length = stretch.end - stretch.start;
  if (memory_.try_read(stretch.start, to, length)) return;
  for (std::uint64_t at = 0; at < length; at += kPage)
    memory_.try_read(stretch.start + at, to + at, kPage);
}

void MemoryCopy::complete() {
  clear_absent();
  read_constant_parts();
  read_shared_memory();
}

// Reads only files that contain a program or library; other constant files are irrelevant to the
// heap.
void MemoryCopy::read_constant_parts() {
  for (const MapEntry& entry : mappings_) {
    if (is_short_kernel_code(entry) && complete_.insert(entry.start).second)
      read_any_pages(part_of(entry), {entry.start, entry.end});
    if (!is_readable(entry) || changes(entry)) continue;
    bool of_module = std::any_of(mappings_.begin(), mappings_.end(), [&](const MapEntry& other) {
      return other.inode == entry.inode && other.device == entry.device &&
             (other.perms & wire::kExecute) != 0;
    });
    if (!of_module || !complete_.insert(entry.start).second) continue;
    const Part part = part_of(entry);
    if (only_present_pages(entry)) {
      read_stretches(part, present_pages(*page_map_, entry));
    } else {
      read_any_pages(part, {entry.start, entry.end});
    }
  }
}

// Memory that the program wrote through another mapping or before a fork, or that was swapped out,
// may have no page in its page table.
void MemoryCopy::read_shared_memory() {
  std::vector<AddressRange> found;
  const Leases leases;
  for (const MapEntry& entry : mappings_) {
    if (!changes(entry)) continue;
    SharedMemoryFile file(pid_, entry, leases);
    std::vector<AddressRange> data = file.data();
    if (data.empty()) continue;
    const Part part = part_of(entry);
    for (const AddressRange& stretch : intersect(data, resident_pages_.untouchable))
      file.read(stretch, view_ + part.offset + (stretch.start - part.address));
    found.insert(found.end(), data.begin(), data.end());
  }
  resident_pages_.untouchable = subtract(resident_pages_.untouchable, found);
}

// Parts of it may have been captured already.
MemoryCopy::Part MemoryCopy::part_of(const MapEntry& entry) {
  auto end = parts_.begin() + static_cast<std::ptrdiff_t>(captured_);
  auto at = std::lower_bound(
      parts_.begin(), end, entry.start,
      [](const Part& part, std::uint64_t address) { return part.address < address; });
  return at != end && at->address == entry.start ? *at : reserve({entry.start, entry.end});
}

// There may be more parts than current mappings: see follow().
bool MemoryCopy::holds(std::uint64_t page) const {
  return std::any_of(parts_.begin(), parts_.end(), [page](const Part& part) {
    return page + kPage > part.address && page < part.address + part.length;
  });
}

std::unique_ptr<Clone> MemoryCopy::build() const {
  std::unique_ptr<Clone> clone = start_copy_host(
      [this](std::uint64_t page) { return occupied(mappings_, page) || holds(page); });
  for (const Part& part : parts_) {
    if (part.address >= arch::kUserEnd) continue;  // the kernel's: every process has it
    // Nothing writes there, so strict overcommit does not count it.
    must(clone->call(arch::kMapCall,
                     {part.address, part.length, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                      static_cast<std::uint64_t>(file_), part.offset / arch::kMapUnit}),
         "cannot map the copied memory", clone->pid());
  }
  return clone;
}

}  // namespace reachscan::helper
