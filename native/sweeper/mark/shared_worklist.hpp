// What several markers share: work that nobody is at yet, and who has none.
//
// The work is ranges of memory to scan, and buckets of the heap with blocks whose scan was put off.
// Buckets wait in line, so that much comes together in each before it is its turn. Marking is over
// when every member waits: only who works can give. Nothing here blocks, since the clone makes no
// system calls: who waits long naps, and the helper wakes it.
//
// A cache line that several processors write to is slow for all of them. So each bucket has a
// member that looks after it, and others send it what they find there, in packets. That is a custom
// only: everybody may mark anywhere, and who has nothing else to do takes packets of others.
#pragma once

#include "sweeper/mark/bucket_line.hpp"
#include "sweeper/mark/put_aside.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::kBucket;
using heaps::List;

// Values that point to buckets which one member looks after.
struct WorkPacket {
  static constexpr uint32_t kMost = 511;
  uint32_t to;
  uint32_t count;
  uint64_t values[kMost];
};

class SharedWorklist {
 public:
  static constexpr uint64_t kLeastMany = 4096;
  static constexpr uint32_t kMostMembers = 256;

  // `least_many`: see many().
  SharedWorklist(const BlockMap& blocks, PutAside& put_aside, uint64_t least_many = kLeastMany)
      : blocks_(blocks),
        put_aside_(put_aside),
        least_many_(least_many),
        ranges_(map_memory, kMaxRanges),
        buckets_(blocks),
        packets_(map_memory, kMaxPackets) {}

  // To be called by every member but the first, which is number 0, before it does anything else.
  // Returns its number. Who comes when all are done finds nothing to do.
  uint32_t join() { return __atomic_fetch_add(&members_, 1, __ATOMIC_RELAXED); }
  uint32_t members() const { return get(members_); }
  bool alone() const { return members() == 1; }

  // Who looks after a bucket: the same for kStripe of them, whose mark_buckets are on one page. It
  // may be somebody else when a member joins.
  uint32_t owner_of(uint64_t bucket) const {
    constexpr uint64_t kStripe = 64;
    constexpr uint32_t kGolden = 0x9e3779b1;  // spreads neighbours
    return static_cast<uint64_t>(static_cast<uint32_t>(bucket / kStripe) * kGolden) * members() >>
           32;
  }

  // Whether somebody has nothing to do and finds nothing here.
  bool hungry() const { return get(waiting_) != 0 && get(stock_) == 0; }

  // False: no room.
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

  // A bucket in which blocks are put off, noted by the giver.
  void give_bucket(uint64_t start) {
    if (!blocks_.cluster_of(start)->queue_bucket(start)) return;
    SpinLock::Guard guard(lock_);
    buckets_.put(start);
    count_stock();
  }

  // The start of a bucket, 0 if there is none.
  uint64_t take_bucket() {
    if (get(stock_) == 0) return 0;
    SpinLock::Guard guard(lock_);
    if (buckets_.size() == 0) return 0;
    uint64_t start = buckets_.take();
    count_stock();
    blocks_.cluster_of(start)->unqueue_bucket(start);
    return start;
  }

  // False: no room.
  bool send(const WorkPacket& packet) {
    SpinLock::Guard guard(lock_);
    if (!packets_.push(packet)) return false;
    __atomic_add_fetch(&mail_[packet.to], 1, __ATOMIC_RELAXED);
    count_stock();
    return true;
  }

  // A packet for a member. False: there is none.
  bool receive(uint32_t member, WorkPacket& packet) {
    return get(mail_[member]) != 0 &&
           take_packet(packet, [=](const WorkPacket& other) { return other.to == member; });
  }

  // One for anybody.
  bool take_packet(WorkPacket& packet) {
    return get(stock_) != 0 && take_packet(packet, [](const WorkPacket&) { return true; });
  }

  // What a free list may have left behind is no pointer at first. False: no room, so it is one.
  bool put_aside(uint64_t value) { return put_aside_.add(value); }

  // How many values, or blocks to be scanned, are many: one for each bucket, but not less than one
  // knows what to do with.
  uint64_t many() const {
    uint64_t buckets = blocks_.inhabited_buckets();
    return buckets > least_many_ ? buckets : least_many_;
  }

  // For a member without work. True: there is some to take. False: all are done.
  template <typename Nap>
  bool wait(Nap nap) {
    __atomic_add_fetch(&waiting_, 1, __ATOMIC_ACQ_REL);
    for (unsigned looks = 1;; ++looks) {
      if (__atomic_load_n(&waiting_, __ATOMIC_ACQUIRE) == get(members_)) return false;
      if (get(stock_) != 0 && stop_waiting()) return true;
      relax();
      if (looks % kRetryPolicy == 0) nap();
    }
  }

  // How much all members have scanned so far.
  uint64_t count(uint64_t bytes) { return __atomic_add_fetch(&scanned_, bytes, __ATOMIC_RELAXED); }

 private:
  static constexpr std::size_t kMaxRanges = 4096;
  static constexpr std::size_t kMaxPackets = 64;
  static constexpr unsigned kRetryPolicy = 1000;  // looks before a nap: some 20 us

  template <typename T>
  static T get(const T& value) {
    return __atomic_load_n(&value, __ATOMIC_RELAXED);
  }

  void count_stock() {
    __atomic_store_n(&stock_, buckets_.size() + ranges_.size() + packets_.size(), __ATOMIC_RELAXED);
  }

  template <typename Wanted>
  bool take_packet(WorkPacket& packet, Wanted wanted) {
    SpinLock::Guard guard(lock_);
    for (WorkPacket& next : packets_) {
      if (!wanted(next)) continue;
      packet = next;
      next = packets_.pop();
      __atomic_sub_fetch(&mail_[packet.to], 1, __ATOMIC_RELAXED);
      count_stock();
      return true;
    }
    return false;
  }

  // Under the lock: else a member could stop waiting for work that another one has just taken,
  // while the rest see all waiting and end.
  bool stop_waiting() {
    SpinLock::Guard guard(lock_);
    if (stock_ == 0) return false;
    __atomic_sub_fetch(&waiting_, 1, __ATOMIC_ACQ_REL);
    return true;
  }

  const BlockMap& blocks_;
  PutAside& put_aside_;
  uint64_t least_many_;
  List<heaps::Range> ranges_;
  BucketLine buckets_;
  List<WorkPacket> packets_;
  uint32_t mail_[kMostMembers] = {};  // how many of them are for whom
  SpinLock lock_;
  uint64_t scanned_ = 0;
  // Everybody looks at these all the time; they change only when somebody runs out of work.
  alignas(64) uint64_t stock_ = 0;
  uint32_t members_ = 1;
  uint32_t waiting_ = 0;
};

}  // namespace reachscan::sweeper
