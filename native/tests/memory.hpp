// Part of another process's address space, recreated at fixed addresses of the test.
#pragma once

#include <cstring>
#include <vector>

#include "memory/space.hpp"

namespace reachscan::tests {

using heaps::uint32_t;
using heaps::uint64_t;

constexpr uint32_t kReadWrite = wire::kRead | wire::kWrite;

// Far from the addresses that the kernel and the sanitizers use; the thread sanitizer supports only
// some parts of the address space.
#ifdef __SANITIZE_THREAD__
constexpr uint64_t kWorld = 0x001000000000;
#else
constexpr uint64_t kWorld = 0x200000000000;
#endif

class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Maps zeroed memory and describes it as a mapping. `perms` affects only the description: in the
  // clone, the helper supplies zeros where a read would fault.
  uint64_t map(uint64_t start, uint64_t bytes, uint32_t perms = kReadWrite, uint32_t flags = 0,
               uint32_t file = 0);
  // Describes a mapping without creating it: it must not be accessed.
  void describe(uint64_t start, uint64_t bytes, uint32_t perms, uint32_t flags, uint32_t file = 0);
  // Splits the mapping that holds [start, start + bytes) and gives that part other permissions.
  void protect(uint64_t start, uint64_t bytes, uint32_t perms) { split(start, bytes, perms, 0); }
  // Splits it likewise and describes that part as never written.
  void leave_out(uint64_t start, uint64_t bytes) { split(start, bytes, kReadWrite, abi::kAbsent); }

  void put(uint64_t address, uint64_t value) { store(address, value); }
  template <typename T>
  void store(uint64_t address, T value) {
    std::memcpy(reinterpret_cast<void*>(address), &value, sizeof value);
  }

  const std::vector<abi::Mapping>& mappings() const { return mappings_; }
  // Includes mappings that are added later.
  const heaps::Space& space() const { return space_; }

 private:
  void split(uint64_t start, uint64_t bytes, uint32_t perms, uint32_t flags);
  void note_mappings() { space_ = {mappings_.data(), mappings_.size()}; }

  std::vector<abi::Mapping> mappings_;
  std::vector<heaps::Range> owned_;
  heaps::Space space_{nullptr, 0};
};

}  // namespace reachscan::tests
