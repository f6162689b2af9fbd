// Where blocks were allocated, if their allocator keeps that itself and tells it by
// malloc_backtrace(), as bionic's does while it is being debugged.
//
// The frames of all blocks form a trie: the node of a frame refers to that of its caller.
#pragma once

#include "sweeper/blob/emit.hpp"
#include "sweeper/mark/hash.hpp"

namespace reachscan::sweeper {

// How an allocator is asked where it allocated blocks. Calls note(context, index, frames, count)
// for those of which it knows that, and returns why it could not be asked about all, null if it
// could.
struct AskAllocator {
  using Note = void (*)(void* context, std::size_t index, const uint64_t* frames,
                        std::size_t count);
  void* heap;
  const char* (*ask)(void* heap, const heaps::List<uint64_t>& blocks, Note note, void* context);
};

class Backtraces {
 public:
  Backtraces(AskAllocator allocator, const heaps::BlockMap& blocks)
      : allocator_(allocator),
        blocks_(blocks),
        nodes_(map_memory, kMaxNodes),
        slots_(static_cast<uint32_t*>(map_memory(kSlots * sizeof(uint32_t)))) {
    nodes_.push({0, 0});  // number 0 is no node
  }

  // Returns the node of the innermost frame, 0 if that is not known.
  uint32_t node_of(uint64_t block) {
    std::size_t at = position_of(block);
    if (at == asked_.size() && problem_ == nullptr) {
      ask(block);
      at = position_of(block);
    }
    return at < asked_.size() ? node_of_asked_[at] : 0;
  }

  // Returns why some are missing, null if none is.
  const char* problem() const { return problem_; }

  void send() const {
    for (std::size_t first = 1; first < nodes_.size(); first += kBatch) {
      std::size_t end = nodes_.size() - first < kBatch ? nodes_.size() : first + kBatch;
      Record record(wire::kStackNodes);
      record.u32(static_cast<uint32_t>(end - first));
      for (std::size_t i = first; i < end; ++i) record.u32(static_cast<uint32_t>(i));
      for (std::size_t i = first; i < end; ++i) record.u32(nodes_[i].caller);
      for (std::size_t i = first; i < end; ++i) record.u32(0);
      for (std::size_t i = first; i < end; ++i) record.u64(nodes_[i].pc);
      record.send();
    }
  }

 private:
  static constexpr std::size_t kMostBlocks = 1 << 20;
  static constexpr unsigned kMostCalls = 64;
  static constexpr std::size_t kBatch = 8192;
  static constexpr unsigned kSlotBits = 20;
  static constexpr std::size_t kSlots = 1u << kSlotBits, kMaxNodes = kSlots / 2;
  static constexpr uint64_t kAddressEnd = 1ull << 63;

  struct Node {
    uint64_t pc;
    uint32_t caller;
  };

  // A call in the clone takes several switches to the helper and back. So all leaks are asked about
  // at once, where leaks are searched for. `block` may already be marked.
  void ask(uint64_t block) {
    std::size_t most = 1;
    if (about_all()) blocks_.each_unmarked([&](uint64_t) { ++most; });
    if (most > kMostBlocks || ++calls_ > kMostCalls) {
      problem_ = "it was not asked about so many blocks";
      return;
    }
    asked_ = {map_memory, most};
    if (about_all())
      blocks_.each_unmarked([&](uint64_t unmarked) {
        if (unmarked != block) asked_.push(unmarked);
      });
    insert(block);
    node_of_asked_ = static_cast<uint32_t*>(map_memory(most * sizeof(uint32_t)));
    problem_ = allocator_.ask(allocator_.heap, asked_, &note, this);
  }

  static bool about_all() { return control()->task == abi::Task::kFindLeaks; }

  void insert(uint64_t block) {
    asked_.push(block);
    for (std::size_t i = asked_.size() - 1; i > 0 && asked_[i - 1] > asked_[i]; --i) {
      asked_[i] = asked_[i - 1];
      asked_[i - 1] = block;
    }
  }

  static void note(void* context, std::size_t index, const uint64_t* frames, std::size_t count) {
    auto* self = static_cast<Backtraces*>(context);
    uint32_t node = 0;
    while (count > 0) node = self->node_at(frames[--count], node);
    self->node_of_asked_[index] = node;
  }

  std::size_t position_of(uint64_t block) const {
    std::size_t at = heaps::lower_bound(asked_, block);
    return at < asked_.size() && asked_[at] == block ? at : asked_.size();
  }

  // Returns the node for this return address below that of its caller. Where there is no room, and
  // for what is no address, returns the caller's.
  uint32_t node_at(uint64_t pc, uint32_t caller) {
    if (pc == 0 || pc >= kAddressEnd) return caller;
    std::size_t slot = mixed(mixed(0, pc), caller) >> (64 - kSlotBits);
    for (; slots_[slot] != 0; slot = (slot + 1) % kSlots) {
      const Node& node = nodes_[slots_[slot]];
      if (node.pc == pc && node.caller == caller) return slots_[slot];
    }
    if (!nodes_.push({pc, caller})) return caller;
    return slots_[slot] = static_cast<uint32_t>(nodes_.size() - 1);
  }

  AskAllocator allocator_;
  const heaps::BlockMap& blocks_;
  heaps::List<uint64_t> asked_;        // in the last call, in the order of addresses
  uint32_t* node_of_asked_ = nullptr;  // for each of them
  unsigned calls_ = 0;
  const char* problem_ = nullptr;
  heaps::List<Node> nodes_;
  uint32_t* slots_;  // numbers of nodes
};

}  // namespace reachscan::sweeper
