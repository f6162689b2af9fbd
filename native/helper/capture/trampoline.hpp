// Makes the stopped target clone itself (arch/*/trampoline.S tells how and why it is safe).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

#include "helper/capture/clone.hpp"
#include "helper/capture/middleman.hpp"
#include "helper/stop/freeze.hpp"
#include "helper/target/memory.hpp"

namespace reachscan::helper {

// Where in the target's vdso the trampoline fits. Found before the pause.
struct TrampolineSite {
  std::uint64_t vdso;
  std::uint64_t address;
};

// Throws Failure(kPlaceTrampoline, kCloneRefused) if the target has no vdso with room behind it.
TrampolineSite find_trampoline_site(pid_t pid, const Memory& memory);

struct CloneResult {
  pid_t clone;     // stopped before its first instruction, killed with us
  pid_t injected;  // the thread that made it: still stopped, inside the trampoline
};

// Throws Failure(kCloneRefused) if no thread can be cloned without harm, or with the errno of the
// refused clone; the target is then still intact. "retry" if no thread can serve at this moment,
// but one will soon. Calls meanwhile() once, on the way, while the kernel copies the page tables.
CloneResult clone_target(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                         Descriptors descriptors, Clock::time_point deadline,
                         const std::function<void()>& meanwhile);

struct FaultDescriptor {
  int descriptor;  // a userfaultfd of the target's memory, in our table only
  pid_t injected;  // as above
};

// The same, but no clone is made. Throws Failure(kTrackWrites, kUnsupportedMethod) if the kernel
// gives no such descriptor.
FaultDescriptor borrow_fault_descriptor(Freeze& freeze, const Memory& memory,
                                        const TrampolineSite& site, Clock::time_point deadline);

// Calls use(middleman) with one that shares memory and descriptors. Returns the injected thread.
pid_t employ_middleman(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                       Clock::time_point deadline, const std::function<void(Middleman&)>& use);

// Follows the injected thread to the end of the trampoline, gives it its registers back and clears
// the trampoline away. Thereby nothing but the dead of a helper leaves a trace.
void leave_trampoline(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                      pid_t injected, Clock::time_point deadline);

}  // namespace reachscan::helper
