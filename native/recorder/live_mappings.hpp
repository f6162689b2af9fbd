// The table of live mappings, as the recorder writes it. They are rarely mapped and unmapped: a
// lock orders the changes, and lookups scan all of them.
#pragma once

#include "arch/instructions.hpp"
#include "recorder/kernel.hpp"
#include "recorder/tables.hpp"

namespace reachscan::recorder {

class LiveMappings {
 public:
  LiveMappings() = default;
  explicit LiveMappings(const Tables& tables)
      : rows_(tables.mappings()), count_(tables.header().mappings.count) {}

  // Keeps other threads and the thread's own signal handlers from the table while it exists. System
  // calls that remove memory must be made under it: a thread that gets that memory next waits.
  class Locked {
   public:
    explicit Locked(LiveMappings& mappings) : lock_(mappings.lock_), before_(block_signals()) {
      std::uint32_t own = process_id();
      for (int looks = 0; !take(own); ++looks) {
        if (looks < kSpinChecks)
          arch::relax();
        else
          sleep_nanoseconds(kPause);
      }
    }
    ~Locked() {
      __atomic_store_n(&lock_, 0, __ATOMIC_RELEASE);
      restore_signals(before_);
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    static constexpr int kSpinChecks = 100;
    static constexpr long kPause = 50'000;

    // A lock inherited through fork() is never released in the child.
    bool take(std::uint32_t own) {
      std::uint32_t holder = __atomic_load_n(&lock_, __ATOMIC_RELAXED);
      return holder != own && __atomic_compare_exchange_n(&lock_, &holder, own, false,
                                                          __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    }

    std::uint32_t& lock_;  // the process that holds it, 0: none
    std::uint64_t before_;
  };

  // Replaces whatever was there before. Returns false if there is no room.
  bool insert(std::uint64_t start, std::uint64_t end, MappingKind kind, const Allocation& of) {
    bool fitted = cut(start, end);
    return add({start, end, pack(of).node_time, ++serial_, static_cast<std::uint16_t>(of.thread),
                kind}) &&
           fitted;
  }

  // Forgets this part of the address space. Returns false if there is no room for the remaining
  // parts.
  bool cut(std::uint64_t start, std::uint64_t end) {
    bool fitted = true;
    for (std::uint64_t i = 0; i < used_; ++i) {
      MappingRow& row = rows_[i];
      if (row.start == 0 || row.start >= end || row.end <= start) continue;
      if (row.start >= start && row.end <= end) {
        set(row.start, 0);
      } else if (row.start >= start) {
        set(row.start, end);
      } else {
        MappingRow upper = row;
        upper.start = end;
        if (row.end > end) fitted = add(upper) && fitted;
        set(row.end, start);
      }
    }
    return fitted;
  }

  // Returns the mapping that starts here, or null.
  MappingRow* find(std::uint64_t start) {
    for (std::uint64_t i = 0; i < used_; ++i)
      if (rows_[i].start == start) return &rows_[i];
    return nullptr;
  }

  // Treats the mapping as if it were new.
  void renew(MappingRow& row, MappingKind kind) {
    __atomic_store_n(&row.kind, kind, __ATOMIC_RELAXED);
    row.serial = ++serial_;
  }

  static void forget(MappingRow& row) { set(row.start, 0); }

  // Later mappings have larger serial numbers.
  std::uint32_t serial() const { return __atomic_load_n(&serial_, __ATOMIC_RELAXED); }

 private:
  bool add(const MappingRow& mapping) {
    std::uint64_t i = 0;
    while (i < used_ && rows_[i].start != 0) ++i;
    if (i >= count_) return false;
    MappingRow& row = rows_[i];
    row.end = mapping.end;
    row.node_time = mapping.node_time;
    row.serial = mapping.serial;
    row.thread = mapping.thread;
    row.kind = mapping.kind;
    set(row.start, mapping.start);
    if (i == used_) ++used_;
    return true;
  }

  static void set(std::uint64_t& word, std::uint64_t value) {
    __atomic_store_n(&word, value, __ATOMIC_RELEASE);
  }

  MappingRow* rows_ = nullptr;
  std::uint64_t count_ = 0;
  std::uint64_t used_ = 0;  // rows from here on have never been used
  std::uint32_t serial_ = 0;
  std::uint32_t lock_ = 0;
};

}  // namespace reachscan::recorder
