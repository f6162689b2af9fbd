// The sweeper's only interface to the outside: requests to the helper (wire/sweeper_abi.hpp).
#pragma once

#include "arch/instructions.hpp"
#include "heaps/heap.hpp"
#include "wire/protocol.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::sweeper {

using heaps::uint32_t;
using heaps::uint64_t;

#ifdef REACHSCAN_HOSTED
// In tests, the test takes the helper's role.
abi::Control* control();
void trap();
inline void relax() {}
#else
extern "C" [[gnu::visibility("hidden")]] const char reachscan_blob[];
// The helper puts the control block right below the blob, which therefore needs no variable.
inline abi::Control* control() {
  return reinterpret_cast<abi::Control*>(reinterpret_cast<std::uintptr_t>(reachscan_blob) -
                                         abi::kControlBytes);
}
using arch::relax;
using arch::trap;
#endif

// Returns whether several words can be tested at once.
inline bool has_wide_words() { return heaps::kWord == 8 && control()->wide_words != 0; }

inline void open_protection_keys() {
  if (control()->protection_keys != 0) arch::open_protection_keys();
}

inline uint64_t request(abi::Request request, uint64_t first = 0, uint64_t second = 0,
                        uint64_t third = 0) {
  abi::Control& block = *control();
  block.first = first;
  block.second = second;
  block.third = third;
  block.result = 0;
  block.request = request;
  trap();
  block.request = abi::Request::kNone;
  return block.result;
}

// Calls a function of the target. It may change all registers that any function may change.
#ifdef __clang__
[[gnu::noinline]]
#else
[[gnu::noipa]]
#endif
inline void
call_target(abi::Call& call) {
  request(abi::Request::kCall, reinterpret_cast<std::uintptr_t>(&call));
}

// The helper does not resume a sweeper that has refused.
[[noreturn]] inline void refuse(abi::Refusal refusal, const char* reason, uint64_t address) {
  for (;;)
    request(abi::Request::kRefused, static_cast<uint64_t>(refusal),
            reinterpret_cast<std::uintptr_t>(reason), address);
}

inline void* map_memory(uint64_t bytes) {
  uint64_t address = request(abi::Request::kMapMemory, bytes);
  if (address == 0)
    refuse(abi::Refusal::kNoMemory, "the clone could not get working memory", bytes);
  return reinterpret_cast<void*>(address);
}

inline void unmap_memory(void* address, uint64_t bytes) {
  request(abi::Request::kUnmapMemory, reinterpret_cast<std::uintptr_t>(address), bytes);
}

inline void begin_phase(wire::Phase phase, uint64_t done = 0, uint64_t total = 0) {
  request(abi::Request::kPhase, phase, done, total);
}

}  // namespace reachscan::sweeper
