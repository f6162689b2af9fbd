// Work packets (as in Ossia et al., 2002): values that one marker has found for another.
#pragma once

#include "sweeper/mark/scratch.hpp"

namespace reachscan::sweeper {

struct Packet {
  static constexpr uint64_t kMax = 510;  // a page in all
  Packet* next;                          // in the list that it is in
  uint64_t count;
  uint64_t values[kMax];
};

// The packets of all markers of one graph. Not thread-safe.
class Packets {
 public:
  static constexpr uint32_t kMaxOwners = 8;

  // Returns how many were given and not yet taken.
  uint64_t given() const { return given_count_; }

  // Returns null if all are in use.
  Packet* take_empty() {
    if (empty_ != nullptr) return pop(empty_);
    return used_ < kAll ? &packets_[used_++] : nullptr;
  }

  void put_empty(Packet* packet) { push(empty_, packet); }

  void give(Packet* packet, uint32_t owner) {
    push(given_[owner], packet);
    ++given_count_;
  }

  // Returns a packet that was given to this owner. If there is none, returns one that was given to
  // another if `any` is set, else null.
  Packet* take_given(uint32_t owner, bool any) {
    for (uint32_t i = 0; given_[owner] == nullptr; owner = (owner + 1) % kMaxOwners)
      if (!any || ++i == kMaxOwners) return nullptr;
    --given_count_;
    return pop(given_[owner]);
  }

 private:
  // So many that a marker can go on while another one waits for a processor.
  static constexpr std::size_t kAll = 1024;

  static void push(Packet*& list, Packet* packet) {
    packet->next = list;
    list = packet;
  }

  static Packet* pop(Packet*& list) {
    Packet* packet = list;
    list = packet->next;
    return packet;
  }

  Scratch<Packet> packets_{kAll};
  std::size_t used_ = 0;
  Packet* empty_ = nullptr;
  Packet* given_[kMaxOwners] = {};
  uint64_t given_count_ = 0;
};

}  // namespace reachscan::sweeper
