// The trie of stacks, as the recorder writes it: a hash table of nodes that only grows, no locks.
#pragma once

#include "recorder/tables.hpp"

namespace reachscan::recorder {

class StackTrie {
 public:
  StackTrie() = default;
  explicit StackTrie(const Tables& tables)
      : header_(&tables.header()), nodes_(tables.nodes()), count_(tables.header().nodes.count) {}

  // Returns the node for `pc` below `parent`, 0 if there is no room. Calls module_of(pc) for a new
  // node.
  template <typename ModuleOf>
  std::uint32_t intern(std::uint32_t parent, std::uint64_t pc, ModuleOf module_of) {
    std::uint64_t at = slot(parent, pc);
    for (std::size_t probe = 0; probe < kMaxSteps; ++probe, at = next(at)) {
      Node& node = nodes_[at];
      std::uint64_t held = __atomic_load_n(&node.pc, __ATOMIC_ACQUIRE);
      if (held == pc && is_child(node, parent)) return static_cast<std::uint32_t>(at);
      // A node that another thread has claimed but not completed may be this one, or not. Waiting
      // could mean waiting for code that this signal handler interrupted, so a duplicate is made
      // instead.
      if (held != 0 || !claim(node, pc)) continue;
      std::uint64_t word = kNodeReady | std::uint64_t{module_of(pc)} << 32 | parent;
      __atomic_store_n(&node.parent, word, __ATOMIC_RELEASE);
      __atomic_fetch_add(&header_->used_nodes, 1, __ATOMIC_RELAXED);
      return static_cast<std::uint32_t>(at);
    }
    return 0;
  }

  // Makes the nodes of a closed module unfindable: new code may be at its addresses.
  void close(std::uint64_t start, std::uint64_t end) {
    for (std::uint64_t at = 1; at < count_; ++at) {
      std::uint64_t pc = __atomic_load_n(&nodes_[at].pc, __ATOMIC_RELAXED);
      // A return address may be one byte past the last call of a module.
      if (pc - 1 >= start && pc - 1 < end)
        __atomic_fetch_or(&nodes_[at].parent, kNodeClosed, __ATOMIC_RELAXED);
    }
  }

 private:
  static constexpr std::size_t kMaxSteps = 64;

  std::uint64_t slot(std::uint32_t parent, std::uint64_t pc) const {
    std::uint64_t hash = (pc ^ std::uint64_t{parent} << 40) * 0x9e37'79b9'7f4a'7c15;
    hash ^= hash >> 32;
    hash *= 0xd6e8'feb8'6659'fd93;
    auto at = static_cast<std::uint64_t>(static_cast<unsigned __int128>(hash) * count_ >> 64);
    return at == 0 ? 1 : at;  // node 0 is the root
  }

  std::uint64_t next(std::uint64_t at) const { return at + 1 == count_ ? 1 : at + 1; }

  static bool is_child(const Node& node, std::uint32_t parent) {
    constexpr std::uint64_t kModule = std::uint64_t{0xffff} << 32;
    std::uint64_t word = __atomic_load_n(&node.parent, __ATOMIC_ACQUIRE);
    return (word & ~kModule) == (kNodeReady | parent);
  }

  static bool claim(Node& node, std::uint64_t pc) {
    std::uint64_t free = 0;
    return __atomic_compare_exchange_n(&node.pc, &free, pc, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
  }

  Header* header_ = nullptr;
  Node* nodes_ = nullptr;
  std::uint64_t count_ = 0;
};

}  // namespace reachscan::recorder
