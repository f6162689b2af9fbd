// What walkers have in common whose allocator may be in a process several times, once in each of
// several modules.
#pragma once

#include "heaps/heap.hpp"
#include "heaps/named_code.hpp"

namespace reachscan::heaps {

// The base of such a walker. `Instance` has a field `file`, and describe_code(space, instance,
// hint) adds its code to a hint.
template <typename Instance, std::size_t kMax>
class Instances {
 public:
  bool is_present() const { return count_ > 0; }

  bool is_in(uint32_t file) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (instances_[i].file == file) return true;
    return false;
  }

  bool quiet(abi::QuiesceHint& hint) const {
    describe(hint);
    return is_quiet_named(space_, threads_, hint);
  }

  void describe(abi::QuiesceHint& hint) const {
    for (std::size_t i = 0; i < count_; ++i) describe_code(space_, instances_[i], hint);
  }

  bool interrupted(abi::QuiesceHint& hint) const {
    describe(hint);
    return any_interrupted(space_, threads_, hint);
  }

  std::size_t arena_count() const { return count_; }

  static Warning warning() { return {}; }

  Totals totals;

 protected:
  // `find` fills the array and returns how many there are.
  template <typename Find>
  Instances(const Space& space, const libc::Threads& threads, Find find)
      : space_(space), threads_(threads), count_(find(instances_)) {}

  const Space& space_;
  const libc::Threads& threads_;
  Instance instances_[kMax];
  std::size_t count_;
};

}  // namespace reachscan::heaps
