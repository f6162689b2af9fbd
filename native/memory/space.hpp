// The address space that walkers read. In the clone it is the sweeper's own, so an address is a
// pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "arch/address_space.hpp"
#include "memory/partition_point.hpp"
#include "wire/protocol.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::heaps {

using std::int64_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;

using arch::kPage;
using arch::kWord;

#ifdef REACHSCAN_HOSTED
// Counts loads of memory: fuzzers treat too many as a finding.
inline thread_local uint64_t loads = 0;
inline void count_load() { ++loads; }
#else
inline void count_load() {}
#endif

// Heap memory may hold anything, so the compiler must not assume types.
template <typename T>
inline T load(uint64_t address) {
  typedef T __attribute__((may_alias, aligned(1))) Raw;
  count_load();
  return *reinterpret_cast<const Raw*>(address);
}

inline uint64_t word(uint64_t address) { return load<arch::Word>(address); }

// Wraps an address around at the end of the target's address space.
constexpr uint64_t wrapped(uint64_t address) { return static_cast<arch::Word>(address); }

// Interprets a word as a signed number.
constexpr int64_t as_signed(uint64_t word) {
  return static_cast<std::make_signed_t<arch::Word>>(static_cast<arch::Word>(word));
}

// Prefetches a cache line. The empty statement is for GCC 12, which takes a function that only
// prefetches for one without effect and drops calls to it.
inline void fetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}
inline void fetch(uint64_t address) { fetch(reinterpret_cast<const void*>(address)); }

// The same, but only into the second-level cache. The processor can wait for more lines at once
// there.
inline void fetch_to_l2(uint64_t address) {
  __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);
  asm volatile("");
}

constexpr uint64_t kLine = 64;  // bytes of a cache line

inline void fetch_lines(uint64_t from, uint64_t to) {
  for (uint64_t line = from; line < to; line += kLine) fetch(line);
}

constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

struct Range {
  uint64_t start;
  uint64_t end;
  bool contains(uint64_t address) const { return address - start < end - start; }
};

class Space {
 public:
  Space(const abi::Mapping* mappings, std::size_t count) : mappings_(mappings), count_(count) {}

  const abi::Mapping* begin() const { return mappings_; }
  const abi::Mapping* end() const { return mappings_ + count_; }

  // Returns the mapping that contains `address`, or null.
  const abi::Mapping* find(uint64_t address) const {
    std::size_t next =
        partition_point(count_, [&](std::size_t i) { return mappings_[i].end <= address; });
    if (next == count_ || address < mappings_[next].start) return nullptr;
    return &mappings_[next];
  }

  // Returns whether [address, address + length) may be read. Walkers check every address they
  // follow with this.
  bool readable(uint64_t address, uint64_t length) const {
    if (address + length < address) return false;
    uint64_t end = address + length;
    for (const abi::Mapping* m = find(address); m != nullptr; ++m) {
      if (!may_read(*m)) return false;
      if (end <= m->end) return true;
      if (m + 1 == this->end() || m[1].start != m->end) return false;
    }
    return false;
  }

  bool is_code(uint64_t address) const {
    const abi::Mapping* m = find(address);
    return m != nullptr && (m->perms & wire::kExecute) != 0;
  }

  static bool may_read(const abi::Mapping& m) {
    return (m.perms & wire::kRead) != 0 && (m.flags & kNotRead) == 0;
  }

  // Private memory that an allocator may have obtained from brk or mmap. The program may have
  // protected some pages of its blocks since.
  static bool is_anonymous(const abi::Mapping& m) {
    return (m.perms & wire::kShared) == 0 &&
           (m.flags & (abi::kFileBacked | abi::kFollowsFile | kNotRead | abi::kMainStack)) == 0;
  }

  // Such memory, if it was ever written to.
  static bool is_written_anonymous(const abi::Mapping& m) {
    constexpr uint32_t kReadWrite = wire::kRead | wire::kWrite;
    return is_anonymous(m) && (m.perms & kReadWrite) == kReadWrite && (m.flags & abi::kAbsent) == 0;
  }

  // Returns the first address at or after `address` that may have been written to.
  uint64_t skip_absent(uint64_t address) const {
    const abi::Mapping* m = find(address);
    while (m != nullptr && m != end() && (m->flags & abi::kAbsent) != 0 && address >= m->start)
      address = m++->end;
    return address;
  }

  // The .data or .bss of a module.
  static bool is_module_data(const abi::Mapping& m) {
    return (m.perms & wire::kWrite) != 0 && (m.perms & wire::kRead) != 0 &&
           (m.perms & wire::kShared) == 0 &&
           (m.flags & (abi::kFileBacked | abi::kFollowsFile)) != 0 && (m.flags & kNotRead) == 0;
  }

  // Returns whether all of [start, end) is such memory.
  bool is_anonymous(uint64_t start, uint64_t end) const {
    for (const abi::Mapping* m = find(start); m != nullptr && is_anonymous(*m); ++m) {
      if (end <= m->end) return true;
      if (m + 1 == this->end() || m[1].start != m->end) return false;
    }
    return false;
  }

  // Returns the run of adjacent anonymous mappings around `address` that the program can access.
  Range accessible_run(uint64_t address) const {
    const abi::Mapping* m = find(address);
    auto usable = [](const abi::Mapping& other) {
      return is_anonymous(other) && (other.perms & (wire::kRead | wire::kWrite)) != 0;
    };
    if (m == nullptr || !usable(*m)) return {0, 0};
    const abi::Mapping* first = m;
    while (first != begin() && first[-1].end == first->start && usable(first[-1])) --first;
    while (m + 1 != end() && m[1].start == m->end && usable(m[1])) ++m;
    return {first->start, m->end};
  }

  // Returns the run of adjacent anonymous mappings around `address`, empty if there is none. The
  // kernel may split one region into several mappings (for transparent huge pages, for example).
  Range anonymous_run(uint64_t address) const {
    const abi::Mapping* m = find(address);
    if (m == nullptr || !is_anonymous(*m)) return {0, 0};
    const abi::Mapping* first = m;
    while (first != begin() && first[-1].end == first->start && is_anonymous(first[-1])) --first;
    while (m + 1 != end() && m[1].start == m->end && is_anonymous(m[1])) ++m;
    return {first->start, m->end};
  }

 private:
  static constexpr uint32_t kNotRead = abi::kUntouchable | abi::kKernelOwned;

  const abi::Mapping* mappings_;
  std::size_t count_;
};

}  // namespace reachscan::heaps
