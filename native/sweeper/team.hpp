// What several markers share: work that nobody is at yet, and who has none.
//
// Each marker keeps its own work. What is too much for it, and half of what it has when another one
// has nothing, it gives to the team. Marking is over when every member waits: only who works can
// give. Nothing here blocks, since the clone makes no system calls: who waits long naps, and the
// helper wakes it.
#pragma once

#include "sweeper/host.hpp"

namespace reachscan::sweeper {

class Team {
 public:
  // `capacity`: of entries that may have to wait at once.
  explicit Team(uint64_t capacity)
      : entries_(map_memory, capacity), ranges_(map_memory, kMaxRanges) {}

  // Members are counted before they start, so that the others do not end without them.
  void join() { __atomic_add_fetch(&members_, 1, __ATOMIC_RELAXED); }
  void leave() { __atomic_sub_fetch(&members_, 1, __ATOMIC_RELAXED); }
  bool alone() const { return get(members_) == 1; }

  // Whether somebody has nothing to do and finds nothing here.
  bool hungry() const { return get(waiting_) != 0 && get(stock_) == 0; }

  void give(const uint64_t* entries, std::size_t count) {
    Lock lock(*this);
    for (std::size_t i = 0; i < count; ++i) full_ = !entries_.push(entries[i]) || full_;
    count_stock();
  }

  // False: no room.
  bool give(heaps::Range range) {
    Lock lock(*this);
    bool room = ranges_.push(range);
    count_stock();
    return room;
  }

  // Half of the entries that wait, `most` at most. Returns their number.
  std::size_t take(uint64_t* entries, std::size_t most) {
    if (get(stock_) == 0) return 0;
    Lock lock(*this);
    std::size_t half = entries_.size() / 2 + entries_.size() % 2;
    std::size_t count = half < most ? half : most;
    for (std::size_t i = 0; i < count; ++i) entries[i] = entries_.pop();
    count_stock();
    return count;
  }

  heaps::Range take_range() {
    if (get(stock_) == 0) return {0, 0};
    Lock lock(*this);
    heaps::Range range = ranges_.empty() ? heaps::Range{0, 0} : ranges_.pop();
    count_stock();
    return range;
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

  // Whether something was lost for want of room. To be asked when all are done.
  bool overflowed() const { return full_; }

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
    __atomic_store_n(&stock_, entries_.size() + ranges_.size(), __ATOMIC_RELAXED);
  }

  // Under the lock: else a member could stop waiting for work that another one has just taken,
  // while the rest see all waiting and end.
  bool stop_waiting() {
    Lock lock(*this);
    if (stock_ == 0) return false;
    __atomic_sub_fetch(&waiting_, 1, __ATOMIC_ACQ_REL);
    return true;
  }

  heaps::List<uint64_t> entries_;
  heaps::List<heaps::Range> ranges_;
  uint32_t locked_ = 0;
  bool full_ = false;
  uint64_t scanned_ = 0;
  // Everybody looks at these all the time; they change only when somebody runs out of work.
  alignas(64) uint64_t stock_ = 0;
  uint32_t members_ = 1;
  uint32_t waiting_ = 0;
};

}  // namespace reachscan::sweeper
