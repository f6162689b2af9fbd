// What one marker finds for others, and others for it.
//
// Each bucket of the heap has an owner, the member that collects the values in it, so that as many
// blocks wait for a bucket's turn as with one marker alone. That is no right: any member may mark
// anywhere, keeps what no packet is left for, and takes what is another's when it is idle.
#pragma once

#include "sweeper/mark/mark_buckets.hpp"

namespace reachscan::sweeper {

class Mailbox {
 public:
  // `own`: where the values go that stay here.
  Mailbox(SharedWorklist& worklist, MarkBuckets& own) : worklist_(worklist), own_(own) {}

  void join() { self_ = worklist_.join() % kMaxOwners; }

  // Sorts values by owner.
  void add(const uint64_t* values, uint64_t count) {
    uint32_t owners = worklist_.members() < kMaxOwners ? worklist_.members() : kMaxOwners;
    for (const uint64_t* value = values; value != values + count; ++value) {
      Packet*& packet = packets_[owner_of(*value, owners)];
      if (packet == nullptr) packet = worklist_.take_empty();
      if (packet == nullptr) {
        own_.add(value, 1);
        continue;
      }
      packet->values[packet->count++] = *value;
      if (packet->count == Packet::kMax) send(packet);
    }
    if (packets_[self_] != nullptr) keep(packets_[self_]);
  }

  // Gives away everything that waits here for others.
  void flush() {
    for (Packet*& packet : packets_)
      if (packet != nullptr && packet->count != 0) send(packet);
  }

  // Takes a packet: one of its own, or else any if `idle`. Returns false if there is none.
  bool receive(bool idle) {
    Packet* packet = worklist_.take_given(self_, idle);
    if (packet == nullptr) return false;
    keep(packet);
    worklist_.put_empty(packet);
    return true;
  }

 private:
  static constexpr uint32_t kMaxOwners = Packets::kMaxOwners;

  // A bucket keeps its owner until another member joins.
  static uint32_t owner_of(uint64_t value, uint32_t owners) {
    constexpr uint32_t kSpread = 0x9e3779b1;  // Fibonacci hashing
    uint32_t spread = static_cast<uint32_t>(value / kBucket) * kSpread;
    return static_cast<uint32_t>(uint64_t{spread} * owners >> 32);
  }

  void send(Packet*& packet) {
    auto owner = static_cast<uint32_t>(&packet - packets_);
    if (owner == self_) return keep(packet);
    worklist_.give(packet, owner);
    packet = nullptr;
  }

  void keep(Packet* packet) {
    own_.add(packet->values, packet->count);
    packet->count = 0;
  }

  SharedWorklist& worklist_;
  MarkBuckets& own_;
  uint32_t self_ = 0;                 // which of the owners this is
  Packet* packets_[kMaxOwners] = {};  // being filled, one for each owner
};

}  // namespace reachscan::sweeper
