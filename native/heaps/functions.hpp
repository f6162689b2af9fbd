// Where the functions of a module start, according to the index of its unwind tables, which
// stripped programs keep.
#pragma once

#include "heaps/images.hpp"

namespace reachscan::heaps {

class Functions {
 public:
  Functions(const Space& space, uint64_t base) {
    constexpr uint32_t kEncodings = 0x3b031b01;  // version 1, and the encodings of the numbers
    uint64_t header = unwind_header(space, base);
    if (header == 0 || !space.readable(header, kTable) || load<uint32_t>(header) != kEncodings)
      return;
    uint64_t count = load<uint32_t>(header + 8);
    if (!space.readable(header, kTable + count * kEntryBytes)) return;
    header_ = header;
    count_ = count;
  }

  // Returns the function around `address`, including padding up to the next one; empty if unknown.
  Range around(uint64_t address) const {
    uint64_t next = partition_point(count_, [&](std::size_t i) { return start_of(i) <= address; });
    if (next == 0 || next == count_) return {0, 0};
    return {start_of(next - 1), start_of(next)};
  }

 private:
  static constexpr uint64_t kTable = 12, kEntryBytes = 8;

  static uint64_t unwind_header(const Space& space, uint64_t base) {
    if (!space.readable(base, sizeof(Ehdr))) return 0;
    uint64_t headers = base + word(base + offsetof(Ehdr, e_phoff));
    uint64_t count = load<uint16_t>(base + offsetof(Ehdr, e_phnum));
    bool fixed = load<uint16_t>(base + offsetof(Ehdr, e_type)) == ET_EXEC;
    if (!space.readable(headers, count * sizeof(Phdr))) return 0;
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t header = headers + i * sizeof(Phdr);
      if (load<uint32_t>(header) == PT_GNU_EH_FRAME)
        return word(header + offsetof(Phdr, p_vaddr)) + (fixed ? 0 : base);
    }
    return 0;
  }

  uint64_t start_of(uint64_t number) const {
    return header_ +
           static_cast<uint64_t>(int64_t{load<int32_t>(header_ + kTable + number * kEntryBytes)});
  }

  uint64_t header_ = 0;
  uint64_t count_ = 0;
};

}  // namespace reachscan::heaps
