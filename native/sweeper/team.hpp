// What several markers share: work that nobody is at yet, and who has none.
//
// The work is ranges of memory to scan, and tracts of the heap with blocks whose scan was put off.
// Tracts wait in line, so that much comes together in each before it is its turn. Marking is over
// when every member waits: only who works can give. Nothing here blocks, since the clone makes no
// system calls: who waits long naps, and the helper wakes it.
#pragma once

#include "sweeper/tract_line.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::kTract;

class Team {
 public:
  static constexpr uint64_t kLeastMany = 4096;

  // `least_many`: see many().
  explicit Team(const BlockMap& blocks, uint64_t least_many = kLeastMany)
      : blocks_(blocks),
        least_many_(least_many),
        ranges_(map_memory, kMaxRanges),
        tracts_(blocks) {}

  // To be called by every member but the first before it does anything else. Who comes when all are
  // done finds nothing to do.
  void join() { __atomic_add_fetch(&members_, 1, __ATOMIC_RELAXED); }
  bool alone() const { return get(members_) == 1; }

  // Whether somebody has nothing to do and finds nothing here.
  bool hungry() const { return get(waiting_) != 0 && get(stock_) == 0; }

  // False: no room.
  bool give(heaps::Range range) {
    Lock lock(*this);
    bool room = ranges_.push(range);
    count_stock();
    return room;
  }

  heaps::Range take_range() {
    if (get(stock_) == 0) return {0, 0};
    Lock lock(*this);
    heaps::Range range = ranges_.empty() ? heaps::Range{0, 0} : ranges_.pop();
    count_stock();
    return range;
  }

  // A tract in which blocks are put off, noted by the giver.
  void give_tract(uint64_t start) {
    if (!blocks_.cluster_of(start)->queue_tract(start)) return;
    Lock lock(*this);
    tracts_.put(start);
    count_stock();
  }

  // The start of a tract, 0 if there is none.
  uint64_t take_tract() {
    if (get(stock_) == 0) return 0;
    Lock lock(*this);
    if (tracts_.size() == 0) return 0;
    uint64_t start = tracts_.take();
    count_stock();
    blocks_.cluster_of(start)->unqueue_tract(start);
    return start;
  }

  // How many values, or blocks to be scanned, are many: one for each tract, but not less than one
  // knows what to do with.
  uint64_t many() const {
    uint64_t tracts = blocks_.inhabited_tracts();
    return tracts > least_many_ ? tracts : least_many_;
  }

  // For a member without work. True: there is some to take. False: all are done.
  template <typename Nap>
  bool wait(Nap nap) {
    __atomic_add_fetch(&waiting_, 1, __ATOMIC_ACQ_REL);
    for (unsigned looks = 1;; ++looks) {
      if (__atomic_load_n(&waiting_, __ATOMIC_ACQUIRE) == get(members_)) return false;
      if (get(stock_) != 0 && stop_waiting()) return true;
      relax();
      if (looks % kPatience == 0) nap();
    }
  }

  // How much all members have scanned so far.
  uint64_t count(uint64_t bytes) { return __atomic_add_fetch(&scanned_, bytes, __ATOMIC_RELAXED); }

 private:
  static constexpr std::size_t kMaxRanges = 4096;
  static constexpr unsigned kPatience = 1000;  // looks before a nap: some 20 us

  class Lock {
   public:
    explicit Lock(Team& team) : team_(team) {
      while (__atomic_exchange_n(&team_.locked_, 1, __ATOMIC_ACQUIRE) != 0) relax();
    }
    ~Lock() { __atomic_store_n(&team_.locked_, 0, __ATOMIC_RELEASE); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Team& team_;
  };

  template <typename T>
  static T get(const T& value) {
    return __atomic_load_n(&value, __ATOMIC_RELAXED);
  }

  void count_stock() {
    __atomic_store_n(&stock_, tracts_.size() + ranges_.size(), __ATOMIC_RELAXED);
  }

  // Under the lock: else a member could stop waiting for work that another one has just taken,
  // while the rest see all waiting and end.
  bool stop_waiting() {
    Lock lock(*this);
    if (stock_ == 0) return false;
    __atomic_sub_fetch(&waiting_, 1, __ATOMIC_ACQ_REL);
    return true;
  }

  const BlockMap& blocks_;
  uint64_t least_many_;
  heaps::List<heaps::Range> ranges_;
  TractLine tracts_;
  uint32_t locked_ = 0;
  uint64_t scanned_ = 0;
  // Everybody looks at these all the time; they change only when somebody runs out of work.
  alignas(64) uint64_t stock_ = 0;
  uint32_t members_ = 1;
  uint32_t waiting_ = 0;
};

}  // namespace reachscan::sweeper
