// The contract of a walker: enumerate every block that an allocator handed out and did not get
// back.
//
// A walker reads memory through Space, adds regions, live blocks and boundaries to a BlockMap, and
// counts them. It recognises its allocator by structure and proves each structure by invariants; a
// version string decides nothing. What does not validate ends in a Verdict, never in a guess. Free
// memory of every kind (lists, caches, the space between) is a boundary; the allocator's own blocks
// are dropped. Roots never include a region, so what a walker claims must be the allocator's.
#pragma once

#include <initializer_list>

#include "memory/block_map.hpp"

namespace reachscan::heaps {

struct Verdict {
  enum Status {
    kFine,
    kAbsent,   // this allocator is not in the process
    kInvalid,  // the structures contradict each other: unknown layout, or a mutation under way
    kNoMemory,
  };
  Status status = kFine;
  const char* reason = nullptr;  // one clause, no full stop
  uint64_t address = 0;          // what the reason is about

  bool fine() const { return status == kFine; }
};

inline Verdict invalid(const char* reason, uint64_t address) {
  return {Verdict::kInvalid, reason, address};
}

struct Totals {
  uint64_t blocks = 0;
  uint64_t bytes = 0;  // usable

  void add(uint64_t size) {
    ++blocks;
    bytes += size;
  }
  void add(const Totals& other) {
    blocks += other.blocks;
    bytes += other.bytes;
  }
  void subtract(uint64_t size) {
    --blocks;
    bytes -= size;
  }
};

// Steps of a search that damaged or hostile memory could make take forever, though no healthy heap
// comes near them. Who runs out of them must refuse.
class Budget {
 public:
  explicit Budget(uint64_t steps) : left_(steps) {}

  // For proving by walks where chunks are: each may begin anywhere and fail at the far end. All the
  // chunks that there can be are more than enough.
  static Budget of_walks(uint64_t bytes, uint64_t least_chunk) {
    constexpr uint64_t kLeast = 1 << 20;
    return Budget(kLeast + bytes / least_chunk);
  }

  // False when it is used up.
  bool spend(uint64_t steps) {
    left_ -= steps < left_ ? steps : left_;
    return left_ > 0;
  }
  bool empty() const { return left_ == 0; }

 private:
  uint64_t left_;
};

// Calls work(context) on as many threads as there are, if so many bytes are worth it, and returns
// when all are done.
using OnThreads = void (*)(uint64_t bytes, void (*work)(void* context), void* context);

// Where a walker puts what it finds, and who helps it.
struct Enumeration {
  BlockMap& blocks;
  Totals& totals;
  OnThreads on_threads;
};

}  // namespace reachscan::heaps
