// Knows which pages of a running target were written to since it was last asked (Linux 6.7:
// asynchronous write protection by userfaultfd, PAGEMAP_SCAN).
//
// Tracking depends only on the descriptor, which nobody else has: when it is closed, by us or
// because we end, the kernel undoes all of it. The target never waits for anybody, since the kernel
// itself resolves the fault of a first write to a page.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "helper/target/process.hpp"
#include "helper/target/stretches.hpp"

namespace reachscan::helper {

// What has become of watched memory since what was written in it was last taken.
struct TrackedArea {
  std::uint64_t start;
  std::uint64_t end;
  bool tracked = false;  // all of it still is: the rest is known
  std::vector<Stretch> written{};
  std::vector<Stretch> absent{};  // holds zeros, whatever it held before
};

class WriteTracker {
 public:
  // Takes over `descriptor`, a new userfaultfd of the target's memory. Throws
  // Failure(kTrackWrites, kUnsupportedMethod) if this kernel cannot track.
  WriteTracker(pid_t pid, int descriptor);
  // Lifts the protection in small steps first: closing alone would hold the target's memory map for
  // the whole time.
  ~WriteTracker();
  WriteTracker(const WriteTracker&) = delete;
  WriteTracker& operator=(const WriteTracker&) = delete;

  // Begins to track a mapping. False if the kernel does not track memory of this kind.
  bool watch(const MapEntry& entry);

  // What was written in [start, end) since the last call, or since it was watched. Memory that is
  // not tracked is left out: nobody watched it, or another mapping has taken its place. False: an
  // error; what was written may not be told then, and not the next time either.
  bool take_written(std::uint64_t start, std::uint64_t end, std::vector<Stretch>& written) const;

  // The same at the end, and absent pages are told too. On two threads, if there are several areas.
  void conclude(std::vector<TrackedArea>& areas) const;

 private:
  bool conclude(TrackedArea& area) const;
  // The general form of it: looks at the state of every page of [start, end).
  bool tell_states(std::uint64_t start, std::uint64_t end, TrackedArea& area) const;

  int faults_;
  int page_map_;
  bool tells_freed_tables_;
  std::vector<Stretch> watched_;
};

}  // namespace reachscan::helper
