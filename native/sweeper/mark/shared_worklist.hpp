// Work shared by several markers, given away and not yet taken, and the number of idle markers.
//
// The work consists of memory ranges to scan, and of packets of values for the members that collect
// them (mailbox.hpp). Marking is over when every member is idle and nothing is left to take, since
// only a working member can give. Nothing here blocks, since the clone makes no system calls: a
// member that has been idle for long naps, and the helper wakes it.
#pragma once

#include "sweeper/mark/bucket_locks.hpp"
#include "sweeper/mark/packets.hpp"
#include "sweeper/mark/put_aside.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::kBucket;
using heaps::List;

class SharedWorklist {
 public:
  static constexpr uint64_t kMinMany = 4096;

  // `least_many`: see many().
  SharedWorklist(const BlockMap& blocks, DeferredWords& put_aside, uint64_t least_many = kMinMany)
      : blocks_(blocks),
        put_aside_(put_aside),
        least_many_(least_many),
        locks_(blocks.buckets()),
        ranges_(map_memory, kMaxRanges) {}

  // Every member except the first calls this before anything else. One that joins when all work is
  // done finds nothing to do. Returns the member's number.
  uint32_t join() { return __atomic_fetch_add(&members_, 1, __ATOMIC_RELAXED); }
  uint32_t members() const { return get(members_); }
  bool alone() const { return members() == 1; }

  // Returns whether a member is idle and there is nothing here to take.
  bool hungry() const { return get(waiting_) != 0 && get(stock_) == 0; }

  // Returns false if there is no room.
  bool give(heaps::Range range) {
    SpinLock::Guard guard(lock_);
    bool room = ranges_.push(range);
    count_stock();
    return room;
  }

  heaps::Range take_range() {
    if (get(stock_) == 0) return {0, 0};
    SpinLock::Guard guard(lock_);
    heaps::Range range = ranges_.empty() ? heaps::Range{0, 0} : ranges_.pop();
    count_stock();
    return range;
  }

  // Packets: see packets.hpp.

  Packet* take_empty() {
    SpinLock::Guard guard(lock_);
    return packets_.take_empty();
  }

  void put_empty(Packet* packet) {
    SpinLock::Guard guard(lock_);
    packets_.put_empty(packet);
  }

  void give(Packet* packet, uint32_t owner) {
    SpinLock::Guard guard(lock_);
    packets_.give(packet, owner);
    count_stock();
  }

  Packet* take_given(uint32_t owner, bool any) {
    if (get(stock_) == 0) return nullptr;
    SpinLock::Guard guard(lock_);
    Packet* packet = packets_.take_given(owner, any);
    count_stock();
    return packet;
  }

  BucketLocks& locks() { return locks_; }

  // Words that a free list may have left behind do not count as pointers at first. Returns false if
  // there is no room, in which case the value does count.
  bool put_aside(uint64_t value) { return put_aside_.add(value); }

  // Returns the live block that a value points into, or 0. Puts it aside if it may be left behind.
  [[gnu::always_inline]] uint64_t block_in(const heaps::Cluster& cluster, uint64_t value) {
    uint64_t start = blocks_.block_in(cluster, value);
    if (start != heaps::kLeftover) return start;
    return put_aside(value) ? 0 : blocks_.block_in(cluster, value | heaps::kElsewhere);
  }

  // How many values, or blocks to scan, are many: one per bucket, but no fewer than are worth
  // sorting.
  uint64_t many() const {
    uint64_t buckets = blocks_.inhabited_buckets();
    return buckets > least_many_ ? buckets : least_many_;
  }

  // For an idle member. Returns true when there is work to take, false when all members are done.
  template <typename Nap>
  bool wait(Nap nap) {
    __atomic_add_fetch(&waiting_, 1, __ATOMIC_ACQ_REL);
    for (unsigned looks = 1;; ++looks) {
      bool all_wait = __atomic_load_n(&waiting_, __ATOMIC_ACQUIRE) == get(members_);
      if (get(stock_) != 0) {
        if (stop_waiting()) return true;
      } else if (all_wait) {
        return false;
      }
      relax();
      if (looks % kSpinsBeforeNap == 0) nap();
    }
  }

  // Adds to the bytes scanned by all members and returns the sum.
  uint64_t count(uint64_t bytes) { return __atomic_add_fetch(&scanned_, bytes, __ATOMIC_RELAXED); }

 private:
  static constexpr std::size_t kMaxRanges = 4096;
  static constexpr unsigned kSpinsBeforeNap = 1000;  // about 20 us

  template <typename T>
  static T get(const T& value) {
    return __atomic_load_n(&value, __ATOMIC_RELAXED);
  }

  void count_stock() {
    __atomic_store_n(&stock_, ranges_.size() + packets_.given(), __ATOMIC_RELAXED);
  }

  // Under the lock: otherwise a member could stop waiting for work that another one has just taken,
  // while the others see all members waiting and finish.
  bool stop_waiting() {
    SpinLock::Guard guard(lock_);
    if (stock_ == 0) return false;
    __atomic_sub_fetch(&waiting_, 1, __ATOMIC_ACQ_REL);
    return true;
  }

  // These never change, so they share no cache line with those that do.
  const BlockMap& blocks_;
  DeferredWords& put_aside_;
  uint64_t least_many_;
  BucketLocks locks_;
  alignas(heaps::kLine) SpinLock lock_;
  List<heaps::Range> ranges_;
  Packets packets_;
  uint64_t scanned_ = 0;
  // All members poll these constantly; they change only with packets and ranges.
  alignas(heaps::kLine) uint64_t stock_ = 0;
  uint32_t members_ = 1;
  uint32_t waiting_ = 0;
};

}  // namespace reachscan::sweeper
