// What the recorder knows, in the memory of the recorded process: when each live block was
// allocated, by which thread, with which stack. The recorder writes these tables; the sweeper and
// the tests read them.
//
// They are one private anonymous mapping of fixed size, so that a clone of the process has one
// consistent copy, whatever instruction its threads were stopped at. Guard pages on both sides keep
// the kernel from merging it with other mappings, so it starts with the Header. It contains
// addresses of blocks, so it is never a root.
//
//   Header | Bucket[buckets] | Record[7 * buckets] | Node[nodes] | ThreadRow[threads]
//          | ModuleRow[modules] | PythonFunction[functions] | MappingRow[mappings]
//          (each part starts on a page)
//
// Everything is written in an order in which a reader that sees any prefix of the writes takes
// nothing unfinished for valid:
// - a record: its words are written, then its key. It is removed before the block goes back to the
//   allocator, so a reused address never meets the record of its former block.
// - a node: its address claims the slot, then its second word says that it is complete. Nodes are
//   never removed. A record is published after all nodes of its stack.
// - rows of threads and modules: complete before anything refers to them, and never removed.
// - a mapping: its start is written last when it is added, and is the only word cleared when it is
//   removed. A mapping that loses its middle exists twice for a moment, so that no part is ever
//   missing: where two rows overlap, the one that starts later counts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reachscan::recorder {

constexpr std::uint64_t kMagic = 0x5345'4c42'4154'5352;  // "RSTABLES"
constexpr std::uint32_t kLayout = 4;
constexpr char kMappingName[] = "reachscan";  // [anon:reachscan] in maps, if the kernel supports it

constexpr std::size_t kKeys = 7;                 // blocks of a bucket
constexpr std::size_t kMaxProbes = 128;          // buckets that may hold a block's record, at most
constexpr std::size_t kMaxRanges = 16;           // of --sizes
constexpr std::uint32_t kMaxDepth = 256;         // functions of machine code
constexpr std::uint32_t kMaxPythonFrames = 256;  // in addition to these

enum class WayIn : std::uint32_t { kRun = 1, kAttach, kLibrary };

enum class Stacks : std::uint32_t { kAuto = 0, kFramePointers, kTables, kInstrumented };

// Why nothing new is recorded any more. Frees are still followed.
enum class Stopped : std::uint32_t { kNot = 0, kFull, kStopAt, kDetached };

struct SizeRange {
  std::uint64_t first;
  std::uint64_t last;
};

// The options in force. Sizes are requested bytes.
struct Options {
  WayIn way_in;
  Stacks stacks;
  std::uint32_t depth;
  std::uint32_t range_count;  // 0: all sizes
  SizeRange ranges[kMaxRanges];
  std::uint64_t min_size;
  std::uint64_t sample;            // mean distance of samples in bytes, 0: everything is recorded
  std::uint64_t stop_at;           // bytes, 0: never
  std::uint32_t modules_filtered;  // --module was given
  std::uint32_t threads_filtered;  // --thread was given
  std::uint32_t with_mappings;     // --mmap was given
  std::uint32_t reserved;
};

struct Part {
  std::uint64_t offset;  // from the header
  std::uint64_t count;
};

struct Header {
  std::uint64_t magic;
  std::uint32_t layout;
  std::uint32_t ready;    // 1 when everything that follows is filled in; nothing is valid before
  std::uint64_t bytes;    // of the mapping, this header included
  std::uint32_t pid;      // of the writing process; a forked child stores its own
  std::uint32_t stopped;  // Stopped
  std::uint64_t stopped_after_ms;  // since the start
  std::uint64_t started_realtime_ns;
  std::uint64_t started_monotonic_ns;  // CLOCK_MONOTONIC of the process, coarse
  // Events without room: blocks that would have been recorded. Records that were made are counted
  // by thread (ThreadRow::records).
  std::uint64_t lost;
  // Bytes requested and not freed; maintained only with --stop-at.
  std::uint64_t live_bytes;
  Options options;
  Part buckets;
  Part records;
  Part nodes;
  Part threads;
  Part modules;
  Part functions;
  Part mappings;
  std::uint32_t used_nodes;  // how many are in use; they are scattered
  std::uint32_t used_threads;
  std::uint32_t used_modules;
  std::uint32_t python;  // 0, or the version of CPython (0x030b) and PythonFlag
};

enum PythonFlag : std::uint32_t {
  kIsPython = 1u << 16,
  kPythonUnderstood = 1u << 17,  // its functions are in the stacks
};

// A cache line of block addresses. A key is the address of a live block if its lowest bit is not
// set and it is not 0; its record has the same index. With the bit set, the record is being
// written. Blocks that found their bucket full are in one of the next ones; `passed` counts the
// records that were moved on from or across this bucket.
struct alignas(64) Bucket {
  std::uint64_t keys[kKeys];
  std::uint32_t passed;
  std::uint32_t reserved;
};
static_assert(sizeof(Bucket) == 64);

// size : 48 | thread : 16, and node : 28 | time : 36, from the highest bit down.
struct Record {
  std::uint64_t size_thread;
  std::uint64_t node_time;
};
static_assert(sizeof(Record) == 16);

constexpr std::uint64_t kMaxSize = (std::uint64_t{1} << 48) - 1;  // larger ones are stored as this
constexpr std::uint32_t kMaxNodes = std::uint32_t{1} << 28;
constexpr std::uint32_t kMaxMappings = std::uint32_t{1} << 16;
constexpr std::uint32_t kMaxThreads = std::uint32_t{1} << 16;
constexpr std::uint64_t kMaxTime = (std::uint64_t{1} << 36) - 1;

// A return address and its caller. The number of a node is its index; node 0 is the root, which is
// not a frame: a stack is a node, then its parents up to the root, innermost frame first. Two nodes
// may have the same address and parent.
//
// In place of a return address there may be a Python function and its current line; the next node
// that is not Python is the interpreter function that evaluates it.
struct Node {
  std::uint64_t pc;      // 0: the slot is free
  std::uint64_t parent;  // NodeFlag, module << 32, parent's number
};
static_assert(sizeof(Node) == 16);

enum NodeFlag : std::uint64_t {
  kNodeReady = std::uint64_t{1} << 63,   // not set: being written
  kNodeClosed = std::uint64_t{1} << 62,  // its module is closed: `pc` may be in another one now
};

// A thread under one of its names. Row 0 represents threads that did not fit.
struct ThreadRow {
  char name[16];
  std::uint32_t tid;
  std::uint32_t reserved;
  std::uint64_t records;  // how many this thread made
};
static_assert(sizeof(ThreadRow) == 32);

// A program or library, once for each time that it was loaded. Row 0 represents code outside of all
// modules.
struct ModuleRow {
  std::uint64_t start;  // of the addresses that its segments occupy
  std::uint64_t end;
  std::uint64_t bias;  // run-time address minus the address in the file
  std::uint32_t closed;
  std::uint32_t build_id_bytes;  // 0: it has none
  unsigned char build_id[24];
  char path[200];  // as the loader knows it, truncated; empty for the program itself
};
static_assert(sizeof(ModuleRow) == 256);

// A Python function. Row 0 represents functions that did not fit.
struct PythonFunction {
  std::uint64_t hash;  // of its name and file; 0: the row is free
  std::uint64_t ready;
  char name[88];  // longer names are stored as dots and their end
  char file[152];
};
static_assert(sizeof(PythonFunction) == 256);

enum MappingKind : std::uint16_t {
  kMapped = 1,         // by mmap() or mremap()
  kStack = 2,          // of a thread that can be joined
  kDetachedStack = 3,  // unmapped when the thread exits
};

// A mapping that the program has requested and not released. Of a thread's stack, only one byte is
// known, that of its descriptor: the C library creates it.
struct MappingRow {
  std::uint64_t start;  // 0: the row is free
  std::uint64_t end;
  std::uint64_t node_time;  // as in a Record
  std::uint32_t serial;     // unique
  std::uint16_t thread;     // the thread that requested it
  std::uint16_t kind;       // MappingKind
};
static_assert(sizeof(MappingRow) == 32);

constexpr std::uint64_t kPythonNode = std::uint64_t{1} << 63;  // no code is there
constexpr std::uint32_t kMaxFunctions = std::uint32_t{1} << 16;

constexpr std::uint64_t python_pc(std::uint32_t function, std::uint32_t line) {
  return kPythonNode | std::uint64_t{function} << 32 | line;
}

constexpr bool is_python(std::uint64_t pc) { return (pc & kPythonNode) != 0; }

// The row of the function.
constexpr std::uint32_t python_function(std::uint64_t pc) {
  return static_cast<std::uint32_t>(pc >> 32) & (kMaxFunctions - 1);
}

// A record, unpacked.
struct Allocation {
  std::uint64_t address;
  std::uint64_t size;     // requested
  std::uint64_t time_ms;  // since the start
  std::uint32_t node;
  std::uint32_t thread;
};

constexpr Record pack(const Allocation& a) {
  std::uint64_t size = a.size < kMaxSize ? a.size : kMaxSize;
  std::uint64_t time = a.time_ms < kMaxTime ? a.time_ms : kMaxTime;
  return {size << 16 | a.thread, std::uint64_t{a.node} << 36 | time};
}

constexpr Allocation unpack(std::uint64_t address, const Record& r) {
  return {address, r.size_thread >> 16, r.node_time & kMaxTime,
          static_cast<std::uint32_t>(r.node_time >> 36),
          static_cast<std::uint32_t>(r.size_thread & (kMaxThreads - 1))};
}

// Who requested a mapping, and when.
constexpr Allocation unpack(const MappingRow& row) {
  return unpack(row.start, {(row.end - row.start) << 16 | row.thread, row.node_time});
}

// The rows of a hash table are in generations. What comes when one is nearly full goes to the next,
// which is seven times as large: rows are scattered over all pages of a generation, and a process
// that allocates little should not need memory for all of them.
constexpr std::uint32_t kGenerations = 4;
constexpr std::uint32_t kLastGeneration = kGenerations - 1;

struct Generation {
  std::uint64_t start;
  std::uint64_t count;

  // The row where the search for something with this hash starts.
  constexpr std::uint64_t home(std::uint64_t hash) const {
    return start + ((hash >> 32) * count >> 32);  // there are fewer than 2^32
  }
  constexpr std::uint64_t next(std::uint64_t at) const {
    return at + 1 == start + count ? start : at + 1;
  }
};

constexpr Generation generation(std::uint32_t number, std::uint64_t rows) {
  std::uint64_t end = rows >> 3 * (kLastGeneration - number);
  std::uint64_t start = number == 0 ? 0 : end >> 3;
  return {start, end - start};
}

// How many rows of a generation are searched: few if there is another one.
constexpr std::size_t rows_searched(std::uint32_t number, const Generation& generation,
                                    std::size_t few, std::size_t most) {
  if (generation.count == 0) return 0;
  return number == kLastGeneration ? most : few;
}

// Lets the generation after `seen` take what comes, unless another thread has done so.
inline void begin_next(std::uint32_t& newest, std::uint32_t seen) {
  __atomic_compare_exchange_n(&newest, &seen, seen + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

// How many buckets of a generation may hold a block's record.
constexpr std::size_t probes_in(std::uint32_t number, const Generation& generation) {
  constexpr std::size_t kFewProbes = 8;
  return rows_searched(number, generation, kFewProbes, kMaxProbes);
}

// Blocks within 64 bytes of address space share a bucket.
constexpr std::uint64_t hash_of_block(std::uint64_t address) {
  return (address >> 6) * 0x9e37'79b9'7f4a'7c15;
}

constexpr bool is_address(std::uint64_t key) { return key != 0 && (key & 1) == 0; }

// Returns whether `bytes` of memory contain complete tables of this layout whose parts lie within
// them. What is read from them afterwards may still be nonsense if a process overwrites its memory,
// but reads stay inside.
inline bool is_valid(const Header& h, std::uint64_t bytes) {
  if (bytes < sizeof(Header) || h.magic != kMagic || h.layout != kLayout || h.ready != 1 ||
      h.bytes > bytes)
    return false;
  auto fits = [&h](const Part& part, std::uint64_t row) {
    return part.offset >= sizeof(Header) && part.offset % 64 == 0 && part.offset <= h.bytes &&
           part.count > 0 && part.count <= (h.bytes - part.offset) / row;
  };
  return fits(h.buckets, sizeof(Bucket)) && fits(h.records, sizeof(Record)) &&
         fits(h.nodes, sizeof(Node)) && fits(h.threads, sizeof(ThreadRow)) &&
         fits(h.modules, sizeof(ModuleRow)) && h.records.count == h.buckets.count * kKeys &&
         fits(h.functions, sizeof(PythonFunction)) &&
         (h.options.with_mappings == 0 ||
          (fits(h.mappings, sizeof(MappingRow)) && h.mappings.count <= kMaxMappings)) &&
         h.nodes.count <= kMaxNodes && h.threads.count <= kMaxThreads &&
         h.options.range_count <= kMaxRanges;
}

// Reads valid tables, here or in a copy that nothing writes to. The recorder itself also uses the
// accessors.
class Tables {
 public:
  constexpr explicit Tables(Header* header) : header_(header) {}

  Header& header() const { return *header_; }
  Bucket* buckets() const { return part<Bucket>(header_->buckets); }
  Record* records() const { return part<Record>(header_->records); }
  Node* nodes() const { return part<Node>(header_->nodes); }
  ThreadRow* threads() const { return part<ThreadRow>(header_->threads); }
  ModuleRow* modules() const { return part<ModuleRow>(header_->modules); }
  PythonFunction* functions() const { return part<PythonFunction>(header_->functions); }
  MappingRow* mappings() const { return part<MappingRow>(header_->mappings); }

  // Finds the record of the block that starts at `address`.
  bool find(std::uint64_t address, Allocation& found) const {
    for (std::uint32_t number = 0; number < kGenerations; ++number)
      if (find_in(number, address, found)) return true;
    return false;
  }

  // Calls visit(allocation) for everything that is recorded, in no particular order.
  template <typename Visit>
  void each(Visit visit) const {
    for (std::uint64_t at = 0; at < header_->buckets.count; ++at)
      for (std::size_t i = 0; i < kKeys; ++i) {
        std::uint64_t key = __atomic_load_n(&buckets()[at].keys[i], __ATOMIC_ACQUIRE);
        if (is_address(key)) visit(unpack(key, records()[at * kKeys + i]));
      }
  }

  // Calls visit(row) for each recorded mapping, in no particular order.
  template <typename Visit>
  void each_mapping(Visit visit) const {
    std::uint64_t count = header_->options.with_mappings != 0 ? header_->mappings.count : 0;
    for (std::uint64_t i = 0; i < count; ++i)
      if (__atomic_load_n(&mappings()[i].start, __ATOMIC_ACQUIRE) != 0) visit(mappings()[i]);
  }

  // Calls visit(number, node) for the frames of a stack, innermost first. Ends early at a node that
  // is missing or incomplete.
  template <typename Visit>
  void each_frame(std::uint32_t number, Visit visit) const {
    for (std::uint32_t depth = 0; number != 0 && depth < kMaxDepth + kMaxPythonFrames; ++depth) {
      if (number >= header_->nodes.count) return;
      const Node& node = nodes()[number];
      std::uint64_t parent = __atomic_load_n(&node.parent, __ATOMIC_ACQUIRE);
      if ((parent & kNodeReady) == 0) return;
      visit(number, node);
      number = static_cast<std::uint32_t>(parent);
    }
  }

  static std::uint32_t module_of(const Node& node) { return node.parent >> 32 & 0xffff; }
  static bool is_closed(const Node& node) { return (node.parent & kNodeClosed) != 0; }

  // The number of records ever made.
  std::uint64_t record_count() const {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < header_->threads.count; ++i)
      sum += __atomic_load_n(&threads()[i].records, __ATOMIC_RELAXED);
    return sum;
  }

 private:
  bool find_in(std::uint32_t number, std::uint64_t address, Allocation& found) const {
    Generation rows = generation(number, header_->buckets.count);
    std::uint64_t at = rows.home(hash_of_block(address));
    for (std::size_t probe = probes_in(number, rows); probe > 0; --probe, at = rows.next(at)) {
      const Bucket& bucket = buckets()[at];
      for (std::size_t i = 0; i < kKeys; ++i) {
        if (__atomic_load_n(&bucket.keys[i], __ATOMIC_ACQUIRE) != address) continue;
        found = unpack(address, records()[at * kKeys + i]);
        return true;
      }
      if (__atomic_load_n(&bucket.passed, __ATOMIC_ACQUIRE) == 0) return false;
    }
    return false;
  }

  template <typename Row>
  Row* part(const Part& p) const {
    return reinterpret_cast<Row*>(reinterpret_cast<unsigned char*>(header_) + p.offset);
  }

  Header* header_;
};

}  // namespace reachscan::recorder
