// Work packets (as in Ossia et al., 2002): values that one marker has found for another.
#pragma once

#include "memory/list.hpp"
#include "sweeper/mark/scratch.hpp"

namespace reachscan::sweeper {

struct Packet {
  static constexpr uint64_t kMax = 511;  // a page in all
  uint64_t count;
  uint64_t values[kMax];
};

// The packets of all markers of one graph. Not thread-safe.
class Packets {
 public:
  Packets() : packets_(kAll), empty_(map_memory, kAll), given_(map_memory, kMaxGiven) {}

  uint64_t given() const { return given_.size(); }

  // Returns null if all are in use.
  Packet* take_empty() {
    if (!empty_.empty()) return empty_.pop();
    return used_ < kAll ? &packets_[used_++] : nullptr;
  }

  void put_empty(Packet* packet) { empty_.push(packet); }

  // Returns false if too many wait.
  bool give(Packet* packet, uint64_t owner) { return given_.push({packet, owner}); }

  // Returns a packet that was given to this owner. If there is none, returns one that was given to
  // another if `any` is set, else null.
  Packet* take_given(uint64_t owner, bool any) {
    std::size_t i = 0;
    while (i < given_.size() && given_[i].owner != owner) ++i;
    if (i == given_.size()) i = any ? 0 : i;
    if (i == given_.size()) return nullptr;
    Packet* packet = given_[i].packet;
    given_[i] = given_[given_.size() - 1];
    given_.pop();
    return packet;
  }

 private:
  struct Given {
    Packet* packet;
    uint64_t owner;
  };
  static constexpr std::size_t kAll = 256;
  static constexpr std::size_t kMaxGiven = 64;

  Scratch<Packet> packets_;
  heaps::List<Packet*> empty_;
  heaps::List<Given> given_;
  std::size_t used_ = 0;
};

}  // namespace reachscan::sweeper
