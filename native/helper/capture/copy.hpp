// The snapshot for targets that must not or cannot be cloned: their memory is read and mapped at
// the same addresses in a process of our own, which the sweeper treats as a clone.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "helper/capture/clone.hpp"
#include "helper/capture/write_tracker.hpp"
#include "helper/stop/wait.hpp"
#include "helper/target/mapped_files.hpp"
#include "helper/target/memory.hpp"
#include "helper/target/process.hpp"
#include "helper/target/reservations.hpp"
#include "helper/target/resident_pages.hpp"

namespace reachscan::helper {

class MemoryCopy {
 public:
  // Called before the pause, since it may take some time. Throws Failure(kReadMemory, kNoMemory) if
  // the copy would not fit into the memory that we may use.
  MemoryCopy(pid_t pid, const Memory& memory);
  ~MemoryCopy();
  MemoryCopy(const MemoryCopy&) = delete;
  MemoryCopy& operator=(const MemoryCopy&) = delete;

  // Reads all pages that the target has and may have written to; a consistent snapshot if it is
  // stopped. Throws Failure(kReadMemory, kTimeout) at the deadline.
  void capture(Clock::time_point deadline = Clock::time_point::max());

  // Called before capture(): reads what can be tracked while the target runs, and rereads what it
  // writes meanwhile, until little is left for capture().
  void read_ahead(WriteTracker& tracker);

  // Called after capture(), for a running target: updates the lists of mappings and pages. New ones
  // are zeros until the caller reads them (each_written).
  void follow();

  // Reads the constant parts of programs and libraries, and shared memory of which the target has
  // no pages. The target may run meanwhile.
  void complete();

  // Returns a stopped process with that memory and nothing else.
  std::unique_ptr<Clone> build() const;

  // The target's mappings at the time of the capture.
  const std::vector<MapEntry>& mappings() const { return mappings_; }

  const ResidentPages& resident_pages() const { return resident_pages_; }

  // Bytes that only the target itself can read.
  std::uint64_t left_out() const { return left_out_; }

  // Calls visit(address, bytes, length) for each part of writable memory that was read, ascending.
  template <typename Visit>
  void each_written(Visit visit) const {
    for (const Part& part : written_) visit(part.address, view_ + part.offset, part.length);
  }

 private:
  struct Part {
    std::uint64_t address;
    std::uint64_t length;
    std::uint64_t offset;  // in the file that holds the copy

    Part within(const AddressRange& stretch) const {
      return {stretch.start, stretch.end - stretch.start, offset + (stretch.start - address)};
    }
  };

  void open_page_map();
  void capture_entry(const MapEntry& entry);
  void capture_from(MapEntry entry, std::uint64_t start, std::uint64_t end);
  std::uint64_t reread_written();
  std::vector<TrackedArea> areas_read_ahead() const;
  static const Part& part_before(const std::vector<Part>& parts, std::uint64_t address);
  void make_room_for(const std::vector<AddressRange>& ranges);
  std::vector<Part> split(const std::vector<AddressRange>& pages) const;
  void clear(const Part& part) const;
  void take_over(const TrackedArea& area);
  void clear_absent();
  void read_stretches(const Part& part, const std::vector<AddressRange>& stretches);
  Part reserve(const AddressRange& range);
  Part part_of(const MapEntry& entry);
  void read_pages(const Part& part, const AddressRange& stretch);
  void read_any_pages(const Part& part, const AddressRange& stretch) const;
  void read_constant_parts();
  void read_shared_memory();
  void require_time() const;
  bool holds(std::uint64_t page) const;

  pid_t pid_;
  const Memory& memory_;
  int file_;
  char* view_ = nullptr;  // of the whole file
  std::size_t view_bytes_ = 0;
  std::uint64_t used_ = 0;
  Clock::time_point deadline_ = Clock::time_point::max();  // for reading
  MappedFiles files_;
  Reservations reservations_;
  std::vector<MapEntry> mappings_;
  std::vector<Part> parts_;
  std::size_t captured_ = 0;  // how many of them capture() has read
  std::vector<Part> written_;
  std::set<std::uint64_t> complete_;  // starts of constant parts that were read
  std::optional<PageMap> page_map_;
  ResidentPages resident_pages_;
  std::uint64_t left_out_ = 0;
  const WriteTracker* tracker_ = nullptr;
  std::vector<Part> ahead_;   // what was read ahead; sorted by address
  std::vector<Part> absent_;  // gone when it was captured; to be cleared
};

}  // namespace reachscan::helper
