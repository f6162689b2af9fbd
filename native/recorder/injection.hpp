// What the helper and the injected recorder write for each other, at the start of a region that the
// helper has mapped in the process:
//
//   guard page | Injection, stack | stubs, code | data | guard page
//
// A function is hooked at its entry if the helper can move its first instructions; there is a slot
// for each. Calls of other functions go through words that the loader has filled in (the global
// offset table). Each hooked word is a slot, too. It gets the address of a stub: a single jump,
// whose target can be changed even if the program has kept a pointer to the stub. What the loader
// fills in later comes from the allocator's symbol table: the words there that contain a function's
// address are slots, too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arch/address_space.hpp"

namespace reachscan::recorder {

constexpr std::uint64_t kInjectionMagic = 0x4843'4154'5441'5352;  // "RSATTACH"
constexpr std::uint32_t kInjectionLayout = 5;

constexpr std::size_t kMaxHooks = 32;
constexpr std::size_t kMaxSlots = std::size_t{1} << 16;
constexpr std::size_t kMaxExtents = 8;
constexpr std::uint32_t kMaxThreadStates = 1 << 14;
constexpr std::size_t kMaxSettings = 16384;

// How the recorder started.
enum class StartOutcome : std::uint32_t {
  kNot = 0,
  kRecording,
  kBadSettings,
  kNoLoader,  // linked statically: no loader has filled in such words
  kNoMemory,
  kNothingToHook,
};

struct MappedRange {
  std::uint64_t start;
  std::uint64_t bytes;
};

// A recorded function, and the next one after it; 0 if the process has no such function.
struct Hook {
  std::uint64_t function;
  std::uint64_t next;  // filled in by the helper if the entry is hooked
  // Whether it returns blocks. Such functions are hooked first and unhooked last, so that every
  // recorded block is seen being freed, whenever the helper is killed.
  std::uint32_t frees;
  std::uint32_t is_at_entry;
};

struct HookedFunction {
  const char* name;
  bool frees;
};

inline constexpr HookedFunction kHookedFunctions[] = {
    {"free", true},
    {"realloc", true},
    {"reallocarray", true},
    {"cfree", true},
    {"free_sized", true},
    {"free_aligned_sized", true},
    {"fork", true},
    {"_Fork", true},
    {"dlclose", true},
    {"prctl", true},
    {"pthread_setname_np", true},
    {"syscall", true},
    {"malloc", false},
    {"calloc", false},
    {"aligned_alloc", false},
    {"memalign", false},
    {"posix_memalign", false},
    {"valloc", false},
    {"pvalloc", false},
};
constexpr std::uint32_t kHookedCount = sizeof kHookedFunctions / sizeof kHookedFunctions[0];
static_assert(kHookedCount <= kMaxHooks);

// What a slot is for. The program cannot copy the address in a slot that is only called through.
enum class SlotUse : std::uint32_t { kNone = 0, kCall, kPointer, kSymbol, kEntry };

struct Slot {
  std::uint64_t address;
  std::uint64_t original;  // the original value of the word
  std::uint32_t hook;
  SlotUse use;
};

// The stubs of calls have a page of their own, those of pointers the next one, and moved starts of
// functions the third.
constexpr std::uint64_t kStubBytes = 24;
constexpr std::uint64_t kStubPage = arch::kLargestPage;
constexpr std::uint64_t kStubPages = 3;
constexpr std::uint64_t kMovedBytes = kStubPage / kMaxHooks;

// Each thread that has allocated has one of these, as the first part of its state.
struct Presence {
  std::uint32_t is_inside = 0;  // a function of the allocator, called by the recorder
  std::uint32_t calls_out = 0;  // other functions called by the recorder that have not returned
};

// Where they are found: `keys` are thread pointers, or 0. The search begins at row_of() and ends
// at a key of 0, or after kMaxProbes.
struct ThreadTable {
  static constexpr std::uint32_t kMaxProbes = 64;

  static std::uint32_t row_of(std::uint64_t thread, std::uint32_t count) {
    return static_cast<std::uint32_t>(thread * 0x9e37'79b9'7f4a'7c15 >> 32) % count;
  }

  std::uint64_t keys;
  std::uint64_t states;
  std::uint64_t stride;  // from one state to the next
  std::uint32_t count;
  std::uint32_t overflowed;  // 1: there was no room for some thread
};

struct Injection {
  std::uint64_t magic;
  std::uint32_t layout;
  std::uint32_t hooked;  // 1 once all slots have been hooked
  MappedRange region;
  MappedRange code;  // including stubs

  // Filled in by the helper.
  std::uint64_t program_headers;
  std::uint64_t program_header_count;
  std::uint64_t main_stack_top;
  std::uint64_t kernel_library;
  std::uint64_t thread_number_offset;  // of a thread's id after its thread pointer, 0: unknown
  std::uint64_t pid;                   // in the process's own PID namespace
  std::uint64_t is_confined;           // by a seccomp filter of some thread
  std::uint64_t is_static;             // no loader has loaded it; then these are known:
  std::uint64_t program_bias;
  MappedRange unwind_tables;

  // Filled in by the recorder.
  StartOutcome begun;
  std::uint32_t extent_count;
  MappedRange extents[kMaxExtents];  // mapped by it
  ThreadTable threads;
  Hook hooks[kMaxHooks];
  std::uint32_t hook_count;
  std::uint32_t module_count;  // modules with slots
  std::uint32_t other_words;   // that lead to functions of these names in another allocator
  std::uint32_t slot_count;
  std::uint32_t initial_slots;  // number of slots when it started
  std::uint32_t is_settled;     // whether the loader's list could be read again
  std::uint64_t add_filled_in;  // where a middleman starts to do that
  Slot slots[kMaxSlots];

  // Filled in by the helper, which reads all that is before them while the target is stopped.
  char settings[kMaxSettings];
};

inline MappedRange pointer_stubs(const Injection& injection) {
  return {injection.code.start + kStubPage, kStubPage};
}

inline std::uint64_t stub_of(const Injection& injection, std::uint32_t hook, SlotUse use) {
  std::uint64_t page = use == SlotUse::kCall ? 0 : kStubPage;
  return injection.code.start + page + hook * kStubBytes;
}

// The address of the moved start of the hooked function.
inline std::uint64_t moved_start(const Injection& injection, std::uint32_t hook) {
  return injection.code.start + 2 * kStubPage + hook * kMovedBytes;
}

}  // namespace reachscan::recorder
