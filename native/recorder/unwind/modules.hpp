// The programs and libraries that are or were loaded: rows of the tables, with what the unwinder
// needs of each.
#pragma once

#include "recorder/pattern.hpp"
#include "recorder/stack_trie.hpp"
#include "recorder/unwind/eh_frame.hpp"
#include "recorder/unwind/loaded_modules.hpp"
#include "recorder/unwind/rule_cache.hpp"

namespace reachscan::recorder {

// Whether the allocations of a module are recorded. The C++ library's operators allocate on behalf
// of their callers.
enum class Calls : std::uint32_t { kUndecided = 0, kUnwanted, kWanted, kOfCaller };

// Returns the tables of the recorder's own image.
UnwindTables own_unwind_tables();

class Modules {
 public:
  // The recorder's private data of a module.
  struct Private {
    UnwindTables unwind;
    const link_map* entry;       // as in LoadedModule
    std::uint64_t headers_at;    // the program headers
    std::uint64_t headers_hash;  // of their contents
    std::uint32_t header_count;
    std::uint32_t is_permanent;  // never closed
    std::uint32_t seen;          // the update that last found it
    std::uint32_t has_nodes;     // it is the module of some recorded frame
    Calls calls;
  };

  Modules() = default;
  // `own` has room for one entry per row. `wanted` must outlive this.
  Modules(const Tables& tables, const LinkMap& link_map, Private* own, const Pattern& wanted)
      : header_(&tables.header()),
        rows_(tables.modules()),
        own_(own),
        link_map_(link_map),
        wanted_(&wanted) {
    own_[0].calls = wanted.matches("") ? Calls::kWanted : Calls::kUnwanted;
  }

  // Returns the row of the module with the code before this return address, 0 if there is none.
  std::uint32_t find(std::uint64_t return_address) const {
    std::uint64_t address = return_address - 1;
    std::uint32_t used = __atomic_load_n(&header_->used_modules, __ATOMIC_ACQUIRE);
    for (std::uint32_t i = 1; i < used; ++i)
      if (address - rows_[i].start < rows_[i].end - rows_[i].start && !is_closed(i)) return i;
    return 0;
  }

  // The same, for a frame that is recorded.
  std::uint32_t find_for_node(std::uint64_t return_address) {
    std::uint32_t i = find(return_address);
    __atomic_store_n(&own_[i].has_nodes, 1, __ATOMIC_RELAXED);
    return i;
  }

  const ModuleRow& row(std::uint32_t i) const { return rows_[i]; }

  // Returns whether this module is still loaded. What is loaded in its place may lack its tables.
  bool is_current(std::uint32_t i) const;

  const UnwindTables& unwind_tables(std::uint32_t i) const { return own_[i].unwind; }

  // `i` must be the module of some frame of the calling thread: then it stays loaded.
  Calls calls(std::uint32_t i) {
    Calls known = __atomic_load_n(&own_[i].calls, __ATOMIC_RELAXED);
    return known == Calls::kUndecided ? decide_calls(i) : known;
  }

  // Updates the rows. Forgets rules and nodes of modules that are gone. Returns false if the rows
  // are not complete because the loader is changing its list.
  bool update(RuleCache& rules, StackTrie& stacks);

  // Returns whether a module was loaded that has no row.
  bool is_full() const { return __atomic_load_n(&is_full_, __ATOMIC_RELAXED); }

  // A forked child has no thread that could finish an update started by the parent.
  void end_update() { __atomic_store_n(&updating_, 0, __ATOMIC_RELEASE); }

  // Changes when a module has been closed: remembered nodes are invalid then.
  std::uint32_t closings() const { return __atomic_load_n(&closings_, __ATOMIC_ACQUIRE); }

 private:
  bool is_closed(std::uint32_t i) const {
    return __atomic_load_n(&rows_[i].closed, __ATOMIC_ACQUIRE) != 0;
  }

  bool update_now(RuleCache& rules, StackTrie& stacks);
  std::uint32_t find_same(const ModuleRow& row) const;
  bool add(Reading reading, const LoadedModule& module, RuleCache& rules, StackTrie& stacks);
  // Those that the last update has not seen and is_gone(row) is true for.
  template <typename IsGone>
  void close(RuleCache& rules, StackTrie& stacks, IsGone is_gone);
  Calls decide_calls(std::uint32_t i);

  Header* header_ = nullptr;
  ModuleRow* rows_ = nullptr;
  Private* own_ = nullptr;
  LinkMap link_map_;
  const Pattern* wanted_ = nullptr;
  bool is_readable_ = false;    // Reading::kByKernel is permitted
  std::uint64_t updating_ = 0;  // the thread pointer of the thread that does
  std::uint32_t updates_ = 0;
  std::uint32_t closings_ = 0;
  bool is_full_ = false;
};

}  // namespace reachscan::recorder
