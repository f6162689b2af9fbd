// Finds out which pages of a running target were written to since the last query (Linux 6.7:
// asynchronous write protection by userfaultfd, PAGEMAP_SCAN).
//
// Tracking depends only on the descriptor, which no other process has: when it is closed, by us or
// because we end, the kernel undoes all of it. The target never waits for another process, since
// the kernel itself resolves the fault of a first write to a page.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "helper/target/process.hpp"
#include "helper/target/stretches.hpp"

namespace reachscan::helper {

// What has happened to watched memory since its written pages were last taken.
struct TrackedArea {
  std::uint64_t start;
  std::uint64_t end;
  bool tracked = false;  // all of it still is, so the fields below are complete
  std::vector<AddressRange> written{};
  std::vector<AddressRange> absent{};  // now reads as zeros, whatever it held before
};

class WriteTracker {
 public:
  // Takes ownership of `descriptor`, a new userfaultfd of the target's memory. Throws
  // Failure(kTrackWrites, kUnsupportedMethod) if this kernel cannot track.
  WriteTracker(pid_t pid, int descriptor);
  // First lifts the protection in small steps: closing alone would lock the target's memory map for
  // the whole time.
  ~WriteTracker();
  WriteTracker(const WriteTracker&) = delete;
  WriteTracker& operator=(const WriteTracker&) = delete;

  // Starts to track a mapping. Returns false if the kernel cannot track memory of this kind.
  bool watch(const MapEntry& entry);

  // Adds what was written in [start, end) since the last call, or since watch(). Omits memory that
  // is not tracked: it was never watched, or another mapping has replaced it. Returns false on an
  // error; some writes may then be reported neither now nor the next time.
  bool take_written(std::uint64_t start, std::uint64_t end,
                    std::vector<AddressRange>& written) const;

  // The same at the end, also reporting absent pages. Uses two threads if there are several areas.
  void finish_tracking(std::vector<TrackedArea>& areas) const;

 private:
  bool finish_tracking(TrackedArea& area) const;
  // The general form: examines the state of every page of [start, end).
  bool report_states(std::uint64_t start, std::uint64_t end, TrackedArea& area) const;

  int faults_;
  int page_map_;
  bool reports_freed_tables_;
  std::vector<AddressRange> watched_;
};

}  // namespace reachscan::helper
