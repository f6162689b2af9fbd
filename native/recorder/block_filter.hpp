// Tells of most blocks that they are not recorded, by one load from memory that is often used: the
// table of live blocks is large, and each look-up there is at another place.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reachscan::recorder {

// Counts the recorded blocks that start in each piece of the address space; distant pieces share a
// count.
class BlockFilter {
 public:
  static constexpr std::size_t kCounts = std::size_t{1} << 16;
  static constexpr std::size_t kBytes = kCounts * sizeof(std::uint32_t);

  // Expects zeroed memory of kBytes. `is_selective`: whether most blocks are not recorded. If they
  // are, counting would cost more than it saves, and every block may be there.
  void place(void* memory, bool is_selective) {
    auto* counts = static_cast<std::uint32_t*>(memory);
    counts[0] = is_selective ? 0 : 1;
    // Other threads read them in the opposite order.
    __atomic_store_n(&counts_, counts, __ATOMIC_RELAXED);
    __atomic_store_n(&mask_, is_selective ? kCounts - 1 : 0, __ATOMIC_RELEASE);
  }

  // Returns false if no block at this address is recorded: before place(), none is.
  bool may_contain(std::uint64_t address) const {
    return __atomic_load_n(count_of(address), __ATOMIC_RELAXED) != 0;
  }

  // Must be called before a block is recorded, and after it is no longer.
  void add(std::uint64_t address) { change(address, 1); }
  void remove(std::uint64_t address) { change(address, -1u); }

 private:
  static constexpr unsigned kPieceBits = 8;

  std::uint32_t* count_of(std::uint64_t address) const {
    std::uint64_t piece = address >> kPieceBits & __atomic_load_n(&mask_, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&counts_, __ATOMIC_RELAXED) + piece;
  }

  void change(std::uint64_t address, std::uint32_t change) {
    if (mask_ != 0) __atomic_fetch_add(count_of(address), change, __ATOMIC_RELAXED);
  }

  static constinit inline std::uint32_t no_blocks_ = 0;

  std::uint32_t* counts_ = &no_blocks_;
  std::uint64_t mask_ = 0;
};

}  // namespace reachscan::recorder
