// The rows of threads, as the recorder writes them.
#pragma once

#include "recorder/kernel.hpp"
#include "recorder/tables.hpp"

namespace reachscan::recorder {

class ThreadRows {
 public:
  ThreadRows() = default;
  explicit ThreadRows(const Tables& tables)
      : header_(&tables.header()), rows_(tables.threads()), count_(tables.header().threads.count) {}

  // Returns the row of the calling thread under this name; 0 if there is no room.
  std::uint32_t find(const char (&name)[sizeof ThreadRow::name]) {
    ThreadRow wanted{};
    wanted.tid = thread_id();
    __builtin_memcpy(wanted.name, name, sizeof wanted.name);
    // Rows are used in no particular order: most are where the hash says.
    std::uint64_t at = wanted.tid * std::uint64_t{0x9e37'79b9} % count_;
    for (std::size_t probe = 0; probe < kMaxSteps; ++probe, at = at + 1 == count_ ? 0 : at + 1) {
      if (at == 0) continue;
      ThreadRow& row = rows_[at];
      std::uint32_t free = 0;
      if (__atomic_compare_exchange_n(&row.tid, &free, wanted.tid, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)) {
        __builtin_memcpy(row.name, wanted.name, sizeof row.name);
        __atomic_fetch_add(&header_->used_threads, 1, __ATOMIC_RELAXED);
        return static_cast<std::uint32_t>(at);
      }
      // Only a thread with this id writes to such a row, and this is the only one now.
      if (free == wanted.tid && __builtin_memcmp(row.name, wanted.name, sizeof row.name) == 0)
        return static_cast<std::uint32_t>(at);
    }
    return 0;
  }

  // Counts one more record of the thread. Except for row 0, only the thread writes to its row.
  void count_record(std::uint32_t row) {
    std::uint64_t& records = rows_[row].records;
    if (row == 0) {
      __atomic_fetch_add(&records, 1, __ATOMIC_RELAXED);
    } else {
      __atomic_store_n(&records, __atomic_load_n(&records, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
    }
  }

 private:
  static constexpr std::size_t kMaxSteps = 64;

  Header* header_ = nullptr;
  ThreadRow* rows_ = nullptr;
  std::uint64_t count_ = 0;
};

}  // namespace reachscan::recorder
