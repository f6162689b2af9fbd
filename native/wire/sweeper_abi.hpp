// What the helper passes to the sweeper, and how the sweeper sends requests to the helper.
//
// The sweeper makes no system call at all (a seccomp filter of the target still applies to the
// clone). It writes a request into the control block and executes a breakpoint. The helper, its
// tracer, serves the request, writes `result` and resumes it. Addresses are addresses in the clone.
#pragma once

#include <cstdint>

#include "arch/address_space.hpp"
#include "wire/inside_allocator.hpp"

namespace reachscan::abi {

enum MappingFlag : std::uint32_t {
  kFileBacked = 1,
  kMainStack = 2,
  kProgramBreak = 4,
  kKernelOwned = 8,   // vdso, vvar, vsyscall, contexts of io_setup(): never a root
  kUntouchable = 16,  // reading it has side effects or faults: a device, a missing page
  kFollowsFile = 32,  // anonymous memory directly after a module's data: its .bss
  kAbsent = 128,      // never written: reads as zeros
  kProtected = 64,    // the program wrote to these pages, then protected them; readable here
};

struct Mapping {
  std::uint64_t start;  // sorted, not overlapping
  std::uint64_t end;
  std::uint32_t perms;  // wire::Permission
  std::uint32_t flags;  // MappingFlag
  std::uint32_t file;   // equal for mappings of one file, 0 for anonymous memory
  std::uint32_t reserved;
};
static_assert(sizeof(Mapping) == 32);

// Whether a thread sleeps in a system call that it will restart.
enum class Sleep : std::uint64_t { kNoOrUnknown = 0, kForLock, kOtherwise };

struct Thread {
  std::uint64_t pc;
  std::uint64_t sp;
  std::uint64_t thread_pointer;
  Sleep sleep = Sleep::kNoOrUnknown;
  std::uint64_t link = 0;  // the link register, 0 if the processor has none
  // Its registers among Control::words, by index, on whose contents no code relies any more. Of a
  // later thread they come later.
  std::uint64_t scratch_start = 0, scratch_end = 0;

  Frame frame() const { return {pc, sp, link}; }
};
static_assert(sizeof(Thread) == 56);

// The purpose of a scan.
enum class Task : std::uint32_t {
  kFindLeaks = 0,
  kListBlocks,      // every live block; for tests of the enumeration
  kCountKinds,      // live blocks, totalled by kind
  kExplain,         // what keeps the block at `query` alive
  kFindReferences,  // what points to the block at `query`
  kListSuspects,    // what nothing reaches now; one of several passes over a running target
};

// A block that an earlier pass over the target, or an earlier scan, found unreferenced.
struct Suspect {
  std::uint64_t start;
  std::uint64_t size;
  std::uint64_t digest;  // of its contents
};
static_assert(sizeof(Suspect) == 24);

// A call of a function of the target, made in the clone. The function may compute, and write to
// memory that only the clone has. It makes no system call: some that change nothing seem to
// succeed, and any other one ends the call.
struct Call {
  enum class Outcome : std::uint64_t {
    kForbidden = 0,  // memory that is shared with others cannot be protected
    kReturned,       // value = its result
    kCrashed,        // value = where
    kTooSlow,
    kWaits,        // for another thread; value = the word by which that one would wake it
    kNeedsKernel,  // value = the number of the system call
  };
  std::uint64_t function;
  std::uint64_t arguments[4];
  std::uint64_t stack_end;
  std::uint64_t limit_ms;  // of processor time
  Outcome outcome;
  std::uint64_t value;
};

enum class Request : std::uint32_t {
  kNone = 0,
  kMapMemory,    // first = bytes; result = address of zeroed, lazily backed memory, 0 if refused
  kUnmapMemory,  // first = address of such memory, second = its bytes
  kFlush,        // first = bytes of whole frames at `output`
  kPhase,        // first = wire::Phase, second = work done, third = work in total
  kFinished,     // all records have been flushed; Control::totals is filled in
  kStartThread,  // first = entry point, second = argument; result = 0 if refused. The
                 // new thread makes no requests: its breakpoints are naps
  kEndThreads,   // the other threads have no more work; they are kept for reuse
  kNap,          // resume in a moment: other threads are working
  kSuspects,     // first = address of Suspects in address order, second = how many
  kCall,         // first = address of a Call, whose outcome is filled in
  kRefused,      // first = Refusal, second = address of a C string, third = address it is about
};

enum class Refusal : std::uint32_t {
  kLayoutUnknown = 1,  // no verdict: the allocator's structures fail validation
  kAllocatorBusy,      // a thread is inside the allocator; QuiesceHint says where
  kNoMemory,
  kStartingUp,  // the program's libraries are still being loaded: nothing is allocated yet
  kNeedsFine,   // an allocator has blocks that only the sweeper's fine form can represent
};

// Lets the helper see from outside whether any thread is inside the allocator.
struct QuiesceHint {
  static constexpr unsigned kMaxMutexes = 1024;
  CodeRanges text;       // the allocators' code
  CodeRanges callees;    // all code that may have been called from there
  CodeRanges unsettled;  // code where a thread that waits for a lock is in mid-operation
  std::uint32_t mutex_count;
  std::uint32_t interrupted;           // whether a signal handler interrupted a thread inside it
  std::uint32_t optional;              // whether to go on if a thread stays inside
  std::uint64_t mutexes[kMaxMutexes];  // addresses of 32-bit words, 0 when free
};

// As in the Final record.
struct Totals {
  std::uint64_t allocations, bytes;
  std::uint64_t leaked, leaked_bytes;
  std::uint64_t direct, direct_bytes;
};

struct Control {
  // Inputs.
  std::uint64_t mappings;
  std::uint64_t mapping_count;
  std::uint64_t threads;
  std::uint64_t thread_count;
  std::uint64_t words;  // register contents of all threads
  std::uint64_t word_count;
  std::uint64_t output;
  std::uint64_t output_capacity;
  std::uint64_t query;  // an address, if the task needs one
  Task task;
  std::uint32_t contents_bytes;   // bytes of a direct leak to send beyond its leading words
  std::uint32_t digests;          // whether to send digests of the contents of leaked blocks
  std::uint32_t marking_threads;  // at most
  std::uint32_t only_suspects;    // only suspects can be leaks: they were in every earlier pass
  std::uint32_t signal_stacks;    // number of threads that may have an alternate signal stack
  std::uint32_t wide_words;       // whether the processor has arch::Lanes
  std::uint32_t protection_keys;  // whether the processor has them
  std::uint32_t withheld;         // whether to mask the contents of blocks except addresses
  // Whether to continue though a thread is inside the allocator: there will be no better moment.
  std::uint32_t last_chance;
  std::uint32_t in_motion;    // output: there was such a thread
  std::uint32_t may_be_free;  // output: blocks that count as allocated may be free
  // Whether the memory was read at different moments, so that a heap may contradict itself.
  std::uint32_t torn;
  // In address order. Unless only suspects can be leaks, these are blocks that earlier scans found
  // lost: if they are the same blocks still, words that lead to them now may be stale.
  std::uint64_t suspects;
  std::uint64_t suspect_count;
  std::uint64_t monotonic_ns;  // when the search began
  std::uint64_t written_ns;    // when the core file was written, since 1970; 0 if there is none
  std::uint32_t python;        // whether Python objects are blocks, too, and not roots
  std::uint32_t may_call;      // whether functions of the target can be called
  std::uint32_t may_repeat;    // whether a scan that refuses as busy will be repeated
  // The current request.
  Request request;
  std::uint64_t first;
  std::uint64_t second;
  std::uint64_t third;
  std::uint64_t result;
  // The outcome.
  Totals totals;
  QuiesceHint hint;
};

// Room for the control block, which is directly below the sweeper's code.
const std::uint64_t kControlBytes = (sizeof(Control) + arch::kPage - 1) & ~(arch::kPage - 1);

}  // namespace reachscan::abi
