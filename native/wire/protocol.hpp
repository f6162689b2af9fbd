// The stream that leaves the helper: written by both native programs, read by
// reachscan/recording/wire.py.
//
//   Hello                      once, 16 bytes
//   { Frame header, payload }  repeated
//   Final or Failure record    last; a stream without one is truncated
//
// All integers are little-endian and unaligned. `str` is u32 length + UTF-8, `raw` the same with
// any bytes. Readers skip unknown record types. wire/records.hpp lists the fields of every record.
#pragma once

#include <cstdint>

#include "wire/records.hpp"

namespace reachscan::wire {

constexpr unsigned char kMagic[8] = {0x89, 'R', 'S', 'C', 'A', 'N', '\r', '\n'};
constexpr std::uint16_t kVersion = 1;
constexpr std::uint8_t kLittleEndian = 1;

struct Hello {
  unsigned char magic[8];
  std::uint16_t version;
  std::uint8_t byte_order;
  std::uint8_t word_size;
  std::uint16_t machine;   // the processor, as numbered in ELF files (e_machine)
  std::uint16_t page_kib;  // size of its pages; older streams have 0 in both: x86_64, 4 KiB
};
static_assert(sizeof(Hello) == 16);

struct FrameHeader {
  std::uint32_t type;
  std::uint32_t length;  // of the payload, bytes
};
static_assert(sizeof(FrameHeader) == 8);

// No record is longer, and readers may refuse one that claims to be.
constexpr std::uint32_t kMaxPayload = 64u << 20;

// Why a leak may be a false one: a word was found that does not count as a pointer but may be one.
enum Doubt : std::uint32_t {
  kOnePastTheEnd = 1,
  kTagged = 2,            // equal to a pointer but for some bits, or holds one next to others
  kUnreadableMemory = 3,  // some memory could not be searched
  kSignalStack = 5,       // large enough for an alternate signal stack, which only the kernel knows
  kMangled = 6,           // a pointer as setjmp() stores it
  kHeldByKernel = 7,      // the kernel may hold a pointer that cannot be read
  kRelative = 8,          // a distance from the word itself, or from the start of its block
  kUnaligned = 9,         // a pointer of 32 bits at any byte offset; one of 64 bits counts as use
  kNumber = 10,           // an address as a number: in 32 bits, shifted, in digits, as a double
  kStaleWord = 11,        // a stale word from an earlier use of its memory
  kAllocatorBusy = 12,    // a thread was inside the allocator and may have held the block
  kLostBefore = 13,       // an earlier scan found that nothing led to it; by now a word does
  kMayBeFree = 14,        // what an allocator keeps in caches was not found, so it may be free
};

// What a block looks like, judging by its own words and its neighbours'.
enum Shape : std::uint8_t {
  kUnknownShape = 0,
  kTreeNode = 1,      // red-black tree: colour, parent, left, right
  kListNode = 2,      // doubly linked: next, previous
  kChainNode = 3,     // singly linked: next, pointing to a block of the same size
  kPointerArray = 4,  // nothing but null and starts of blocks
  kVectorBody = 5,    // its owner holds its begin, end and capacity, one after the other
  kText = 6,          // printable up to a zero byte in its second half
  kZeros = 7,
  kString = 8,  // text as long as the block allows
};

// The state of the block that was asked about.
enum BlockState : std::uint32_t { kNoHeap = 0, kReachable = 1, kLeaked = 2, kNotLive = 3 };

// What holds a reference. `slot` is its address; for a root word it is 0, and `index` says which
// word.
enum Holder : std::uint32_t {
  kRootMemory = 1,
  kRootWord = 2,
  kReachableBlock = 3,
  kLeakedBlock = 4
};

enum Permission : std::uint32_t {
  kRead = 1,
  kWrite = 2,
  kExecute = 4,
  kShared = 8,
  kApart = 16,  // no permission: anonymous memory after a module that is not its .bss
};

enum RegionKind : std::uint32_t {
  kProgramBreak = 1,
  kThreadHeap = 2,
  kMapped = 3,
  kPools = 4,        // of Python's own allocator
  kProgramPool = 5,  // of the program's own, annotated with libreachscan
};

enum Phase : std::uint32_t {
  kFreeze = 1,
  kQuiesce = 2,
  kClone = 3,
  kEnumerate = 4,
  kMark = 5,
  kCollect = 6,  // order the leaks and send them
};

// `parent` of a direct leak. Other leaks name the leak (by its position in the whole stream)
// through which they were first reached. A direct leak is followed by all leaks reached from it.
constexpr std::uint32_t kDirect = 0xffffffffu;

// `thread` of a block that was not recorded.
constexpr std::uint32_t kNotRecorded = 0xffffffffu;

// Leading words of each leak that are sent with it (zero-padded past the block's end).
constexpr std::uint32_t kLeadWords = 8;

}  // namespace reachscan::wire
