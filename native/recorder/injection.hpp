// What the helper and the recorder that it puts into a running process write for each other, at the
// start of a region that the helper has mapped there:
//
//   page of no use | Injection, stack | stubs, code | data | page of no use
//
// Calls of the allocator go through words that the loader has filled in (the global offset table).
// Each such word that is hooked is a slot. It gets the address of a stub: one jump, whose target
// can be changed even where somebody has kept a pointer to the stub. What the loader fills in
// later, it takes from the allocator's table of symbols: the words there that tell where a function
// is are slots, too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reachscan::recorder {

constexpr std::uint64_t kInjectionMagic = 0x4843'4154'5441'5352;  // "RSATTACH"
constexpr std::uint32_t kInjectionLayout = 3;

constexpr std::size_t kMaxHooks = 32;
constexpr std::size_t kMaxSlots = std::size_t{1} << 16;
constexpr std::size_t kMaxExtents = 8;
constexpr std::uint32_t kMaxThreadStates = 1 << 14;
constexpr std::size_t kMaxSettings = 16384;

// How the recorder began.
enum class Begun : std::uint32_t {
  kNot = 0,
  kRecording,
  kBadSettings,
  kNoLoader,  // linked statically: nobody has filled in such words
  kNoMemory,
  kNothingToHook,
};

struct MappedRange {
  std::uint64_t start;
  std::uint64_t bytes;
};

// One function that is recorded, and what stands behind it; 0 if the process has no such function.
struct Hook {
  std::uint64_t function;
  std::uint64_t next;
  // Blocks go back by it. Such functions are hooked first, and let go of last: what is recorded is
  // seen to go whatever moment the helper is killed at.
  std::uint32_t frees;
  std::uint32_t reserved;
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

// What a slot is for. Only the address in one that is called through cannot be copied by the
// program.
enum class SlotUse : std::uint32_t { kNone = 0, kCall, kPointer, kSymbol, kEntry };

struct Slot {
  std::uint64_t address;
  std::uint64_t original;  // what the word held
  std::uint32_t hook;
  SlotUse use;
};

// The stubs of calls have a page of their own, those of pointers the next one, and what was moved
// from the start of functions the third.
constexpr std::uint64_t kStubBytes = 24;
constexpr std::uint64_t kStubPage = 4096;
constexpr std::uint64_t kStubPages = 3;
constexpr std::uint64_t kMovedBytes = kStubPage / kMaxHooks;

// Each thread that has allocated has one of these, the first thing in its state.
struct Presence {
  std::uint32_t is_inside = 0;  // a function of the allocator, called by the recorder
  std::uint32_t calls_out = 0;  // other functions that the recorder has called, and yet to return
};

// Where they are found: `keys` are thread pointers, 0 where none is.
struct ThreadTable {
  std::uint64_t keys;
  std::uint64_t states;
  std::uint64_t stride;  // from one state to the next
  std::uint32_t count;
  std::uint32_t overflowed;  // 1: there was no room for some thread
};

struct Injection {
  std::uint64_t magic;
  std::uint32_t layout;
  std::uint32_t hooked;  // 1 when all slots have been hooked
  MappedRange region;
  MappedRange code;  // stubs included

  // What the helper knows.
  std::uint64_t program_headers;
  std::uint64_t program_header_count;
  std::uint64_t main_stack_top;
  std::uint64_t kernel_library;
  std::uint64_t thread_number_offset;  // of a thread's number behind its thread pointer, 0: unknown
  std::uint64_t pid;                   // as the process knows itself
  std::uint64_t is_static;             // then hooks and slots are known, too, and these:
  std::uint64_t program_bias;
  MappedRange unwind_tables;
  char settings[kMaxSettings];

  // What the recorder answers.
  Begun begun;
  std::uint32_t extent_count;
  MappedRange extents[kMaxExtents];  // that it has mapped
  ThreadTable threads;
  Hook hooks[kMaxHooks];
  std::uint32_t hook_count;
  std::uint32_t module_count;  // that have slots
  std::uint32_t other_words;   // that lead to another allocator's functions of these names
  std::uint32_t slot_count;
  std::uint32_t begun_slots;    // how many of these there were when it began
  std::uint32_t is_settled;     // whether the loader's list could be looked through again
  std::uint64_t add_filled_in;  // where a middleman starts to have that done
  Slot slots[kMaxSlots];
};

inline MappedRange pointer_stubs(const Injection& injection) {
  return {injection.code.start + kStubPage, kStubPage};
}

inline std::uint64_t stub_of(const Injection& injection, std::uint32_t hook, SlotUse use) {
  bool is_called = use == SlotUse::kCall || use == SlotUse::kEntry;
  std::uint64_t page = is_called ? 0 : kStubPage;
  return injection.code.start + page + hook * kStubBytes;
}

// Where the start of the hooked function lies once it was moved.
inline std::uint64_t moved_start(const Injection& injection, std::uint32_t hook) {
  return injection.code.start + 2 * kStubPage + hook * kMovedBytes;
}

}  // namespace reachscan::recorder
