// Makes the stopped target clone itself (arch/*/trampoline.S explains how and why it is safe).
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

// Throws Failure(kPlaceTrampoline, kCloneRefused) if the target has no vdso with room after it.
TrampolineSite find_trampoline_site(pid_t pid, const Memory& memory);

struct CloneResult {
  pid_t clone;     // stopped before its first instruction, killed with us
  pid_t injected;  // the thread that created it: still stopped, inside the trampoline
};

// Throws Failure(kCloneRefused) if no thread can safely be used, or with the errno of the failed
// clone; the target is then unchanged. Throws kRetry if no thread is suitable now, but one will be
// soon. Calls meanwhile() once, while the kernel copies the page tables.
CloneResult clone_target(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                         Descriptors descriptors, Clock::time_point deadline,
                         const std::function<void()>& meanwhile);

struct FaultDescriptor {
  int descriptor;  // a userfaultfd of the target's memory, in our table only
  pid_t injected;  // as above
};

// The same without making a clone. Throws Failure(kTrackWrites, kUnsupportedMethod) if the kernel
// provides no such descriptor.
FaultDescriptor borrow_fault_descriptor(Freeze& freeze, const Memory& memory,
                                        const TrampolineSite& site, Clock::time_point deadline);

// Calls use(middleman) with a middleman that shares memory and descriptors. Returns the injected
// thread.
pid_t use_middleman(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                    Clock::time_point deadline, const std::function<void(Middleman&)>& use);

// Has a middleman start a process that shares memory and descriptors and outlives the middleman. It
// is stopped before its first instruction and killed with us. No code of the trampoline may be
// executed by it, since that is removed.
CloneResult start_worker(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                         Clock::time_point deadline);

// Runs the injected thread to the end of the trampoline, restores its registers and removes the
// trampoline, so that only the death of a helper leaves a trace.
void leave_trampoline(Freeze& freeze, const Memory& memory, const TrampolineSite& site,
                      pid_t injected, Clock::time_point deadline);

}  // namespace reachscan::helper
