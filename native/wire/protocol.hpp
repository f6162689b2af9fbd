// The stream that leaves the helper: what both native programs write and
// reachscan/recording/wire.py reads.
//
//   Hello                      once, 16 bytes
//   { Frame header, payload }  repeated
//   Final or Failure record    last; a stream without one was cut off
//
// All integers are little-endian and unaligned. `str` is u32 length + bytes (UTF-8 where it is
// text). Readers skip record types that they do not know. docs/wire-format.md draws every record.
#pragma once

#include <cstdint>

namespace reachscan::wire {

constexpr unsigned char kMagic[8] = {0x89, 'R', 'S', 'C', 'A', 'N', '\r', '\n'};
constexpr std::uint16_t kVersion = 1;
constexpr std::uint8_t kLittleEndian = 1;

struct Hello {
  unsigned char magic[8];
  std::uint16_t version;
  std::uint8_t byte_order;
  std::uint8_t word_size;
  std::uint32_t reserved;
};
static_assert(sizeof(Hello) == 16);

struct FrameHeader {
  std::uint32_t type;
  std::uint32_t length;  // of the payload, bytes
};
static_assert(sizeof(FrameHeader) == 8);

// No record is longer; a reader may refuse one that claims to be.
constexpr std::uint32_t kMaxPayload = 64u << 20;

enum RecordType : std::uint32_t {
  kTarget = 1,     // u32 pid, u32 threads, u64 started (ns since the epoch), str name, str exe,
                   // u32 n, n x str command
  kMappings = 2,   // u32 n, n x { u64 start, u64 end, u64 offset, u64 inode, u32 perms, str path }
  kModules = 3,    // u32 n, n x { u64 base, str path, str build_id (raw bytes) }
  kThreads = 4,    // u32 n, n x { u32 tid, u64 sp, u64 pc, u64 thread_pointer, str name }
  kSnapshot = 5,   // str method, str reason, u64 pause_ns, u32 attempts, u32 drain_runs,
                   // u32 n, n x { str phase, u64 ns }
  kHeap = 6,       // str allocator, u64 allocations, u64 bytes, u32 arenas, u32 regions
  kRegions = 7,    // u32 n, n x { u64 start, u64 end, u32 kind, u32 arena }
  kLeaks = 8,      // u32 n, u32 w, u64 address[n], u64 size[n], u32 parent[n], u64 words[n*w]
  kTypes = 9,      // u32 n, n x { u64 vtable, str mangled_name }
  kProgress = 10,  // u32 phase, u32 reserved, u64 done, u64 total
  kWarning = 11,   // str code, str message
  kFailure =
      12,       // u32 step, i32 errno, u32 tid, u64 address, str step_name, str code, str sentence
  kFinal = 13,  // u64 allocations, u64 bytes, u64 leaked, u64 leaked_bytes, u64 direct,
                // u64 direct_bytes
  kNames = 14,  // u32 n, n x { u64 address, str module, str symbol, u64 offset };
                // added by Python when a stream is saved
  kContents = 15,  // u32 n, n x { u32 leak, str bytes }: more of a direct leak than its words show
  kDoubts = 16,    // u32 n, n x { u32 first, u32 count, u32 reason }: leaks that are only possible
  kShapes = 17,    // u32 n, u8 shape[n]: of the leaks in the record before
  kDigests = 18,   // u32 n, u64 digest[n]: of the contents of the leaks in the record before
  kKinds = 19,     // u32 n, u32 w, u64 count[n], u64 bytes[n], u64 size[n], u64 example[n],
                   // u32 arena[n], u32 shape[n], u64 words[n*w]
  kBlock = 20,     // u64 asked, u64 start, u64 size, u32 state, u32 arena
  kReferences =
      21,       // u32 n, n x { u64 slot, u64 value, u32 holder, u32 index, u64 block, u64 size }
  kChain = 22,  // the same: from a root to the block that was asked for
  kWordOwners = 23,    // u32 n, n x { u32 first, u32 count, u32 tid }: whose words are roots
  kConfirmation = 24,  // u64 every_ns, u32 n, u64 pause_ns[n], u64 vanished, u64 vanished_bytes,
                       // u64 recent, u64 recent_bytes; added by Python, which scans repeatedly
  kSightings = 25,     // u32 n, n x { u32 form, u64 about, a row of References }: words in another
                       // form that mean the block that was asked about, or what owns it
  kAbsent = 26,        // u32 n, n x { u64 start, u64 end }: where nothing was ever written
  kWithheld = 27,      // u32 withheld: 1 if words of blocks that are no addresses were replaced by
                       // others of their class
};

// Why a leak may be none: what was found is not taken for a pointer, but could be one.
enum Doubt : std::uint32_t {
  kOnePastTheEnd = 1,
  kTagged = 2,            // equal to a pointer but for its 16 high bits
  kUnreadableMemory = 3,  // some memory could not be searched
  kSignalStack = 5,   // large enough for a stack of signal handlers, which only the kernel knows
  kMangled = 6,       // a pointer as setjmp() stores it
  kHeldByKernel = 7,  // the kernel may hold a pointer that nobody can read
  kRelative = 8,      // a distance from the word itself, or from the start of its block
  kUnaligned = 9,     // a pointer that begins at any byte: the block is in use, so no leak has this
  kNumber = 10,       // an address as a number: of 32 bits, shifted, in digits, a double
  kStaleWord = 11,    // a word that is left over from a former use of its memory
};

// What a block looks like, told by its own words and its neighbours'.
enum Shape : std::uint8_t {
  kUnknownShape = 0,
  kTreeNode = 1,      // red-black tree: colour, parent, left, right
  kListNode = 2,      // doubly linked: next, previous
  kChainNode = 3,     // singly linked: next, to a block of the same size
  kPointerArray = 4,  // nothing but null and starts of blocks
  kVectorBody = 5,    // its owner holds its begin, end and capacity, one after the other
  kText = 6,          // printable up to a zero byte near its end
  kZeros = 7,
};

// What the block that was asked for is.
enum BlockState : std::uint32_t { kNoHeap = 0, kReachable = 1, kLeaked = 2, kNotLive = 3 };

// What holds a reference: `slot` is its address, except that of a word, which is the `index`th.
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
  kApart = 16,  // no permission: anonymous memory right behind a module that is not its .bss
};

enum RegionKind : std::uint32_t { kProgramBreak = 1, kThreadHeap = 2, kMapped = 3 };

enum Phase : std::uint32_t {
  kFreeze = 1,
  kQuiesce = 2,
  kClone = 3,
  kEnumerate = 4,
  kMark = 5,
  kCollect = 6,  // order the leaks and send them
};

// `parent` of a direct leak. Other leaks name the leak (by its position in the whole stream)
// through which they were first reached; a direct leak is followed by everything that hangs below
// it.
constexpr std::uint32_t kDirect = 0xffffffffu;

// Leading words of each leak that travel with it (zero-padded past the block's end).
constexpr std::uint32_t kLeadWords = 8;

}  // namespace reachscan::wire
