// Maps memory at fixed addresses, and describes it as the helper would.
#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "check.hpp"

namespace reachscan::tests {

Memory::~Memory() {
  for (const heaps::Range& range : owned_)
    munmap(reinterpret_cast<void*>(range.start), range.end - range.start);
}

uint64_t Memory::map(uint64_t start, uint64_t bytes, uint32_t perms, uint32_t flags,
                     uint32_t file) {
  void* got = mmap(reinterpret_cast<void*>(start), bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK_EQ(reinterpret_cast<uint64_t>(got), start);
  owned_.push_back({start, start + bytes});
  describe(start, bytes, perms, flags, file);
  return start;
}

void Memory::describe(uint64_t start, uint64_t bytes, uint32_t perms, uint32_t flags,
                      uint32_t file) {
  abi::Mapping added{start, start + bytes, perms, flags, file, 0};
  auto at = std::upper_bound(
      mappings_.begin(), mappings_.end(), added,
      [](const abi::Mapping& a, const abi::Mapping& b) { return a.start < b.start; });
  CHECK(at == mappings_.end() || at->start >= added.end);
  CHECK(at == mappings_.begin() || at[-1].end <= added.start);
  mappings_.insert(at, added);
  note_mappings();
}

void Memory::split(uint64_t start, uint64_t bytes, uint32_t perms, uint32_t flags) {
  auto at = std::find_if(mappings_.begin(), mappings_.end(),
                         [&](const abi::Mapping& m) { return start < m.end; });
  CHECK(at != mappings_.end() && at->start <= start && start + bytes <= at->end);
  abi::Mapping whole = *at;
  mappings_.erase(at);
  if (whole.start < start) describe(whole.start, start - whole.start, whole.perms, whole.flags);
  describe(start, bytes, perms, whole.flags | flags);
  if (start + bytes < whole.end)
    describe(start + bytes, whole.end - start - bytes, whole.perms, whole.flags);
}

}  // namespace reachscan::tests
