// What a program has declared about its memory: the table that libreachscan writes and the sweeper
// reads, in a clone of the process or from outside.
//
// It is one private anonymous mapping between guard pages, so that it merges with no other and
// starts with the Header. A reader that sees any prefix of the writes takes nothing unfinished for
// valid: an entry's `kind_size` is claimed as kBusy, then its start is written, then `kind_size`.
// The table is copied by fork() and stays valid in the child.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reachscan::library {

constexpr std::uint64_t kMagic = 0x4554'4f4e'4e41'5352;  // "RSANNOTE"
constexpr std::uint32_t kLayout = 1;

enum class Kind : std::uint64_t {
  kNone = 0,     // a slot that was never used
  kRemoved = 1,  // a slot that may be used again
  kBusy = 2,     // being written
  kIgnored = 3,  // a block that is not a leak
  kRoot = 4,     // memory whose pointers count, wherever it is
  kUnseen = 5,   // memory whose pointers do not count
  kPool = 6,     // a Pool, whose pointers do not count either
};

struct Entry {
  std::uint64_t start;
  std::uint64_t kind_size;  // kind : 8 | size : 56, from the highest bit down

  static constexpr std::uint64_t pack(Kind kind, std::uint64_t size) {
    return static_cast<std::uint64_t>(kind) << 56 | size;
  }
  static constexpr Kind kind(std::uint64_t packed) { return static_cast<Kind>(packed >> 56); }
  static constexpr std::uint64_t size(std::uint64_t packed) { return packed << 8 >> 8; }
};
static_assert(sizeof(Entry) == 16);

constexpr std::uint64_t kEntries = std::uint64_t{1} << 22;  // pages are backed on first use
constexpr std::uint64_t kPageEntries = 256;                 // of the smallest page size
constexpr std::uint64_t kPages = kEntries / kPageEntries;
constexpr std::uint64_t kMaxProbes = 4096;

struct alignas(kPageEntries * sizeof(Entry)) Header {
  std::uint64_t magic;
  std::uint32_t layout;
  std::uint32_t ready;              // 1 when everything that follows is filled in
  std::uint64_t bytes;              // of the table, this header included
  std::uint64_t malloc_code;        // in a file whose malloc calls the next one; 0 if there is none
  std::uint64_t lost;               // annotations that did not fit
  std::uint64_t used[kPages / 64];  // a bit for each page of entries, set if it may contain some
};
constexpr std::uint64_t kBytes = sizeof(Header) + kEntries * sizeof(Entry);

inline bool is_valid(const Header& header, std::uint64_t bytes) {
  return bytes >= kBytes && header.magic == kMagic && header.layout == kLayout &&
         header.ready == 1 && header.bytes == kBytes;
}

// Where the search for an entry starts. Neighbouring addresses share a page of the table.
constexpr std::uint64_t home_of(std::uint64_t start) {
  return ((start >> 5) + (start >> 32) * 0x9e37'79b9) % kEntries;
}

// Calls visit(entry, kind, size) for every valid entry.
template <typename Visit>
void each_entry(const Header& header, Visit visit) {
  const auto* entries = reinterpret_cast<const Entry*>(&header + 1);
  for (std::uint64_t page = 0; page < kPages; ++page) {
    if ((header.used[page / 64] >> page % 64 & 1) == 0) continue;
    for (std::uint64_t i = page * kPageEntries; i < (page + 1) * kPageEntries; ++i) {
      std::uint64_t packed = entries[i].kind_size;
      if (packed >= Entry::pack(Kind::kIgnored, 0))
        visit(entries[i], Entry::kind(packed), Entry::size(packed));
    }
  }
}

// Memory from which the program itself hands out objects. They start and end at granules; anything
// outside of them is free. Bits that record their edges follow: a pair of words per kPoolSpan
// bytes.
struct Pool {
  struct Bits {
    std::uint64_t starts;
    std::uint64_t ends;
  };

  std::uint64_t start;
  std::uint64_t end;      // 0: not ready yet
  std::uint64_t unknown;  // objects that could not be noted: what is free is unknown then
  std::uint64_t reserved;

  // For the granule at `address`; `end` is allowed.
  const Bits& bits(std::uint64_t address) const;
  Bits& bits(std::uint64_t address);
};

constexpr std::uint64_t kPoolGranule = 8;
constexpr std::uint64_t kPoolSpan = 64 * kPoolGranule;

constexpr std::uint64_t pool_bytes(std::uint64_t start, std::uint64_t end) {
  return sizeof(Pool) + (end / kPoolSpan - start / kPoolSpan + 1) * sizeof(Pool::Bits);
}

inline const Pool::Bits& Pool::bits(std::uint64_t address) const {
  return reinterpret_cast<const Bits*>(this + 1)[address / kPoolSpan - start / kPoolSpan];
}
inline Pool::Bits& Pool::bits(std::uint64_t address) {
  return reinterpret_cast<Bits*>(this + 1)[address / kPoolSpan - start / kPoolSpan];
}

}  // namespace reachscan::library
