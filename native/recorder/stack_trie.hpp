// The trie of stacks, as the recorder writes it: a hash table of nodes that only grows, no locks.
// Most frames are older than the newest generation.
#pragma once

#include "recorder/tables.hpp"

namespace reachscan::recorder {

class StackTrie {
 public:
  StackTrie() = default;
  explicit StackTrie(const Tables& tables)
      : header_(&tables.header()), nodes_(tables.nodes()), count_(tables.header().nodes.count) {}

  // Returns the node for `pc` below `parent`, 0 if there is no room. Calls module_of(pc) if the
  // node is new, or that of a closed module.
  template <typename ModuleOf>
  std::uint32_t intern(std::uint32_t parent, std::uint64_t pc, ModuleOf module_of) {
    std::uint32_t module = 0;  // 0: not asked for yet, or none
    auto ask_once = [&](std::uint64_t code) {
      if (module == 0) module = module_of(code);
      return module;
    };
    std::uint32_t found = intern_at(hash_of(parent, pc), parent, pc, ask_once);
    if (found != 0 || ask_once(pc) == 0) return found;
    // Modules that were at one place in succession have taken all rows there.
    return intern_at(hash_of(parent, pc ^ std::uint64_t{module} << 48), parent, pc, ask_once);
  }

  // Makes the nodes of a closed module unfindable: new code may be at its addresses.
  void close(std::uint64_t start, std::uint64_t end) {
    Generation used = rows_of(__atomic_load_n(&newest_, __ATOMIC_RELAXED));
    for (std::uint64_t at = 1; at < used.start + used.count; ++at) {
      std::uint64_t pc = __atomic_load_n(&nodes_[at].pc, __ATOMIC_RELAXED);
      // A return address may be one byte past the last call of a module.
      if (pc - 1 >= start && pc - 1 < end)
        __atomic_fetch_or(&nodes_[at].parent, kNodeClosed, __ATOMIC_RELAXED);
    }
  }

 private:
  // Returns 0 if there is no room near the rows of this hash.
  template <typename ModuleOf>
  std::uint32_t intern_at(std::uint64_t hash, std::uint32_t parent, std::uint64_t pc,
                          ModuleOf& module_of) {
    for (std::uint32_t number = 0;; ++number) {
      std::uint32_t newest = __atomic_load_n(&newest_, __ATOMIC_RELAXED);
      if (std::uint32_t found = intern_in(number, number >= newest, hash, parent, pc, module_of))
        return found;
      if (number == kLastGeneration) return 0;
      if (number == newest) begin_next(newest_, newest);
    }
  }

  // Returns 0 if the node is not in this generation, and cannot or must not be added to it.
  template <typename ModuleOf>
  std::uint32_t intern_in(std::uint32_t number, bool may_add, std::uint64_t hash,
                          std::uint32_t parent, std::uint64_t pc, ModuleOf& module_of) {
    Generation rows = rows_of(number);
    std::uint64_t at = rows.home(hash);
    for (std::size_t step = steps_in(number, rows); step > 0; --step, at = rows.next(at)) {
      Node& node = nodes_[at];
      std::uint64_t held = __atomic_load_n(&node.pc, __ATOMIC_ACQUIRE);
      if (held == pc && is_child(node, parent, module_of)) return static_cast<std::uint32_t>(at);
      if (held == 0 && !may_add) return 0;
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

  // Node 0 is the root.
  Generation rows_of(std::uint32_t number) const {
    Generation rows = generation(number, count_ - 1);
    return {rows.start + 1, rows.count};
  }

  static std::size_t steps_in(std::uint32_t number, const Generation& rows) {
    constexpr std::size_t kMaxSteps = 64, kFewSteps = 16;
    return rows_searched(number, rows, kFewSteps, kMaxSteps);
  }

  static std::uint64_t hash_of(std::uint32_t parent, std::uint64_t pc) {
    std::uint64_t hash = (pc ^ std::uint64_t{parent} << 40) * 0x9e37'79b9'7f4a'7c15;
    hash ^= hash >> 32;
    return hash * 0xd6e8'feb8'6659'fd93;
  }

  // The node of a closed module is the right one again once that is loaded at the same place. It is
  // then on the stack of this thread, so it is not closed meanwhile.
  template <typename ModuleOf>
  static bool is_child(Node& node, std::uint32_t parent, ModuleOf& module_of) {
    std::uint64_t word = __atomic_load_n(&node.parent, __ATOMIC_ACQUIRE);
    std::uint64_t flags = word & (kNodeReady | kNodeClosed);
    if (static_cast<std::uint32_t>(word) != parent || (flags & kNodeReady) == 0) return false;
    if ((flags & kNodeClosed) == 0) return true;
    std::uint32_t module = Tables::module_of(node);
    if (module == 0 || module != module_of(node.pc)) return false;
    __atomic_fetch_and(&node.parent, ~std::uint64_t{kNodeClosed}, __ATOMIC_RELAXED);
    return true;
  }

  static bool claim(Node& node, std::uint64_t pc) {
    std::uint64_t free = 0;
    return __atomic_compare_exchange_n(&node.pc, &free, pc, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
  }

  Header* header_ = nullptr;
  Node* nodes_ = nullptr;
  std::uint64_t count_ = 0;
  std::uint32_t newest_ = 0;  // the generation that takes new nodes
};

}  // namespace reachscan::recorder
