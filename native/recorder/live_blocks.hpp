// The table of live blocks, as the recorder writes it: no locks, no tombstones.
#pragma once

#include "recorder/tables.hpp"

namespace reachscan::recorder {

class LiveBlocks {
 public:
  LiveBlocks() = default;
  explicit LiveBlocks(const Tables& tables)
      : buckets_(tables.buckets()), records_(tables.records()) {
    for (std::uint32_t number = 0; number < kGenerations; ++number)
      generations_[number] = generation(number, tables.header().buckets.count);
  }

  // Called after the allocator has returned the block. Returns false if there is no room near its
  // home buckets, which in such a table means that it is full.
  bool insert(const Allocation& allocation) {
    for (std::uint32_t newest = used();; newest = used()) {
      if (insert_into(newest, allocation)) return true;
      if (newest == kLastGeneration) break;
      begin_next(newest_, newest);
    }
    for (std::uint32_t number = kLastGeneration; number-- > 0;)
      if (insert_into(number, allocation)) return true;
    return false;
  }

  // Called before the block goes back to the allocator. Returns whether it was in the table.
  // Inlined, since compilers do not turn a call into a jump while a variable whose address was
  // passed on is live.
  [[gnu::always_inline]] bool remove(std::uint64_t address, Allocation& was) {
    for (std::uint32_t number = used() + 1; number-- > 0;)
      if (remove_from(number, address, was)) return true;
    return false;
  }

 private:
  // Whoever frees a block has got its address from the thread that recorded it, and sees at least
  // the generation that this has seen.
  std::uint32_t used() const { return __atomic_load_n(&newest_, __ATOMIC_RELAXED); }

  bool insert_into(std::uint32_t number, const Allocation& allocation) {
    const Generation& rows = generations_[number];
    std::uint64_t home = rows.home(hash_of_block(allocation.address)), at = home;
    for (std::size_t probe = probes_in(number, rows); probe > 0; --probe, at = rows.next(at)) {
      for (std::size_t i = 0; i < kKeys; ++i) {
        std::uint64_t& key = buckets_[at].keys[i];
        std::uint64_t free = 0;
        if (__atomic_load_n(&key, __ATOMIC_RELAXED) != 0 ||
            !__atomic_compare_exchange_n(&key, &free, allocation.address | 1, false,
                                         __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
          continue;
        Record packed = pack(allocation);
        store(records_[at * kKeys + i], packed);
        // A reader that finds the key must also find the way to it.
        count_passed(rows, home, at, 1);
        __atomic_store_n(&key, allocation.address, __ATOMIC_RELEASE);
        return true;
      }
    }
    return false;
  }

  [[gnu::always_inline]] bool remove_from(std::uint32_t number, std::uint64_t address,
                                          Allocation& was) {
    const Generation& rows = generations_[number];
    std::uint64_t home = rows.home(hash_of_block(address)), at = home;
    for (std::size_t probe = probes_in(number, rows); probe > 0; --probe, at = rows.next(at)) {
      Bucket& bucket = buckets_[at];
      for (std::size_t i = 0; i < kKeys; ++i) {
        if (__atomic_load_n(&bucket.keys[i], __ATOMIC_RELAXED) != address) continue;
        was = unpack(address, records_[at * kKeys + i]);
        __atomic_store_n(&bucket.keys[i], 0, __ATOMIC_RELEASE);
        count_passed(rows, home, at, -1u);
        return true;
      }
      if (__atomic_load_n(&bucket.passed, __ATOMIC_RELAXED) == 0) return false;
    }
    return false;
  }

  static void store(Record& record, const Record& value) {
    __atomic_store_n(&record.size_thread, value.size_thread, __ATOMIC_RELAXED);
    __atomic_store_n(&record.node_time, value.node_time, __ATOMIC_RELAXED);
  }

  void count_passed(const Generation& rows, std::uint64_t home, std::uint64_t at,
                    std::uint32_t change) {
    for (; home != at; home = rows.next(home))
      __atomic_fetch_add(&buckets_[home].passed, change, __ATOMIC_ACQ_REL);
  }

  Bucket* buckets_ = nullptr;
  Record* records_ = nullptr;
  std::uint32_t newest_ = 0;  // the generation that takes what comes
  Generation generations_[kGenerations] = {};
};

}  // namespace reachscan::recorder
