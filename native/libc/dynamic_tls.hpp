// The thread-local variables of libraries that were loaded later: each thread has a block of them
// for each library, and a table of these blocks (glibc's dynamic thread vector).
#pragma once

#include "arch/thread_local.hpp"
#include "memory/space.hpp"

namespace reachscan::libc {

// An entry is two words, of which the first is the block's address, all ones if the thread has not
// used the library's variables yet. Entry 0 is a count of changes and a word of zeros, where other
// C libraries have addresses; the entry before it says how many follow.
class TlsTable {
 public:
  TlsTable(const Space& space, uint64_t thread_pointer) {
    uint64_t field = thread_pointer + arch::kTlsTableField;
    if (thread_pointer == 0 || !space.readable(field, heaps::kWord)) return;
    uint64_t entries = heaps::word(field), before = entries - kEntryBytes;
    if (entries % heaps::kWord != 0 || !space.readable(before, 2 * kEntryBytes) ||
        heaps::word(entries + heaps::kWord) != 0)
      return;
    uint64_t count = heaps::word(before);
    if (count > kMax || !space.readable(entries, (count + 1) * kEntryBytes)) return;
    entries_ = entries;
    count_ = count;
  }

  // Libraries have numbers from 1 to this one.
  uint64_t count() const { return count_; }

  // Returns the block's address, which need not be readable.
  uint64_t block(uint64_t number) const {
    return number <= count_ ? heaps::word(entries_ + number * kEntryBytes) : 0;
  }

 private:
  static constexpr uint64_t kEntryBytes = 2 * heaps::kWord;
  static constexpr uint64_t kMax = 1 << 16;

  uint64_t entries_ = 0;
  uint64_t count_ = 0;
};

}  // namespace reachscan::libc
