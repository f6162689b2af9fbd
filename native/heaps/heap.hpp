// The contract of a walker: enumerate every block that an allocator has handed out and not got
// back. The concept Walker below lists its members; this is what it must do.
//
// A walker reads memory through Space, adds regions, live blocks and boundaries to a BlockMap, and
// counts them. It recognises its allocator by structure and proves each structure by invariants; a
// version string decides nothing. Anything that fails validation ends in a Verdict, never in a
// guess. Free memory of every kind (lists, caches, gaps) is a boundary; the allocator's own blocks
// are dropped. Roots never include a region, so what a walker claims must belong to the allocator.
//
// To add an allocator, see docs/adding-an-allocator.md.
#pragma once

#include <concepts>
#include <initializer_list>

#include "libc/threads.hpp"
#include "memory/block_map.hpp"

namespace reachscan::library {
struct Header;
}

namespace reachscan::heaps {

struct Verdict {
  enum Status {
    kFine,
    kAbsent,   // this allocator is not in the process
    kInvalid,  // the structures contradict each other: unknown layout, or a concurrent change
    kNoMemory,
  };
  Status status = kFine;
  const char* reason = nullptr;  // one clause, no full stop
  uint64_t address = 0;          // what the reason refers to

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

// Bounds the steps of a search that damaged or hostile memory could make endless, though no healthy
// heap comes near the limit. A search that exhausts it must refuse.
class Budget {
 public:
  explicit Budget(uint64_t steps) : left_(steps) {}

  // For proving chunk boundaries by walks, each of which may start anywhere and fail at the far
  // end. The largest possible number of chunks is more than enough.
  static Budget of_walks(uint64_t bytes, uint64_t least_chunk) {
    constexpr uint64_t kMin = 1 << 20;
    return Budget(kMin + bytes / least_chunk);
  }

  // Returns false when it is used up.
  bool spend(uint64_t steps) {
    left_ -= steps < left_ ? steps : left_;
    return left_ > 0;
  }
  void exhaust() { left_ = 0; }
  bool empty() const { return left_ == 0; }

 private:
  uint64_t left_;
};

// Calls work(context) on all available threads, if this many bytes are worth it, and returns when
// all are done.
struct OnThreads {
  using Work = void (*)(void* context);

  void operator()(uint64_t bytes, Work work, void* context) const { run(bytes, work, context); }

  uint64_t (*count)(uint64_t bytes);  // of the threads, at most
  void (*run)(uint64_t bytes, Work work, void* context);
};

constexpr char kIncompleteFreeBlocks[] = "incomplete-free-blocks";

// Something that the user must know although the heap was enumerated. `code` is null if there is
// nothing.
struct Warning {
  const char* code = nullptr;
  const char* text = nullptr;

  // Whether what looks lost may be free, so that no leak is certain. A field for this would make
  // the structure too large for registers, and each warning a constant with relocations.
  bool doubts_all() const { return code == kIncompleteFreeBlocks; }
};

constexpr std::size_t kNameLength = 32;

// Is called for a block in a list, with its backtrace, innermost frame first.
using NoteBacktrace = void (*)(void* context, std::size_t index, const uint64_t* frames,
                               std::size_t count);

// How functions of the target are called, if they can be.
struct Caller {
  void (*call)(abi::Call& call) = nullptr;
  // Whether there will be another attempt if a thread is inside the allocator.
  bool may_repeat = false;
};

// What the sweeper needs from a walker, in the order of the calls. If the allocator is not in the
// process, only the constructor and is_present() are called.
template <typename W>
concept Walker = requires(W& walker, const W& found, BlockMap& blocks, OnThreads on_threads,
                          abi::QuiesceHint& hint, char (&name)[kNameLength], uint32_t number) {
  // Searches for the allocator. `threads` outlives the walker; exited threads are not known yet,
  // but are when enumerate() is called. A walker that is used only on request also gets whether it
  // is wanted; one based on the program's annotations gets their header; one that calls the
  // allocator's own functions gets the means.
  requires std::constructible_from<W, const Space&, const libc::Threads&, MapMemory> ||
      std::constructible_from<W, const Space&, const libc::Threads&, MapMemory, bool> ||
      std::constructible_from<W, const Space&, const libc::Threads&, MapMemory,
                              const library::Header*> ||
      std::constructible_from<W, const Space&, const libc::Threads&, MapMemory, Caller>;
  { found.is_present() } -> std::same_as<bool>;
  // Whether it is part of the module with this number (abi::Mapping::file), so that the malloc
  // defined by the module is known.
  { found.is_in(number) } -> std::same_as<bool>;
  // Returns false if a thread is inside the allocator.
  { walker.quiet(hint) } -> std::same_as<bool>;
  // Adds to `hint` what to watch until no thread is inside.
  found.describe(hint);
  // Numbers its arenas, starting with the given number.
  { walker.enumerate(blocks, on_threads, number) } -> std::same_as<Verdict>;
  // After kInvalid: whether the cause may pass: signal handlers interrupted the allocator, or a
  // thread holds one of its locks.
  { found.interrupted(hint) } -> std::same_as<bool>;
  // What was enumerated. Blocks of several arenas are distinguished by Region::arena.
  { found.totals } -> std::convertible_to<const Totals&>;
  { found.arena_count() } -> std::same_as<std::size_t>;
  { found.warning() } -> std::same_as<Warning>;
  // For people: no decision depends on the name.
  found.write_name(name);
  // Calls visit(range) for the allocator's variables in its module's data: they point to blocks,
  // but keep none alive.
  found.each_variable([](Range) {});
  // How many bytes at the head of a freed block the allocator uses for its lists. The marker takes
  // care of what they leave behind (memory/leftover.hpp). 0 if all lists are elsewhere.
  requires W::kLinkBytes <= kHeadBytes;
  // Whether its blocks need the fine form of the sweeper (memory/cluster.hpp). The blocks of other
  // walkers are in the same map then, so each walker must be able to fill both forms.
  { W::kNeedsFine } -> std::convertible_to<bool>;
  // A walker that also supports 32-bit programs defines kSupportsShortWords (heaps/no_heap.hpp).
};

// Where a walker puts what it finds, and the threads that help it.
struct Enumeration {
  BlockMap& blocks;
  Totals& totals;
  OnThreads on_threads;

  // Adds a region. `taken` is the reason to fail if part of it belongs to another one.
  Verdict claim(const Region& region, const char* taken) const {
    if (const Region* other = blocks.region_in({region.start, region.end}))
      return invalid(taken, other->start);
    if (!blocks.add_region(region)) return {Verdict::kNoMemory, nullptr, region.start};
    return {};
  }

  // The same for a region whose ends are boundaries. Another one's block may start at its end.
  Verdict claim_apart(const Region& region, const char* taken) const {
    Verdict verdict = claim(region, taken);
    if (!verdict.fine()) return verdict;
    blocks.add_boundary(region.start);
    if (!blocks.is_live(region.end)) blocks.add_boundary(region.end);
    return verdict;
  }

  // Adds a block that need not fill its place, which ends at `limit`. A block of zero bytes has a
  // granule of its own, too.
  void add_block(uint64_t block, uint64_t bytes, uint64_t limit) const {
    blocks.add_live(block);
    totals.add(bytes);
    uint64_t edge = align_up(block + (bytes != 0 ? bytes : 1), kGranule);
    if (edge < limit) blocks.add_boundary(edge);
  }
};

}  // namespace reachscan::heaps
