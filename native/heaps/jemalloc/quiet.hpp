// Where the allocator's code is.
#pragma once

#include "heaps/jemalloc/layout.hpp"
#include "heaps/named_code.hpp"

namespace reachscan::heaps::jemalloc {

// The structure that contains the root starts a little before it.
constexpr uint64_t kBeforeRoot = 0x100;

inline void describe_code(const Space& space, const Instance& instance, abi::QuiesceHint& hint) {
  Range tree{instance.root - kBeforeRoot, instance.root + instance.tree.node_bytes()};
  describe_code_naming(space, instance.file, tree, hint);
}

}  // namespace reachscan::heaps::jemalloc
