// The functions called by code that is compiled with -finstrument-functions, and queries of the
// recorded calls. Needs no C library.
#include <sys/mman.h>

#include "arch/frames.hpp"
#include "arch/kernel_calls.hpp"
#include "instrumented/calls.hpp"

namespace reachscan::instrumented {

namespace {

// The data of a thread. It outlives the thread, until another one takes it over.
struct Owned {
  std::uint64_t owner;  // process << 32 | thread
  Owned* next;
  ThreadCalls calls;
};

constinit Owned* all = nullptr;
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadCalls* own_calls = nullptr;

bool has_ended(std::uint64_t owner, std::uint64_t process) {
  constexpr long kNoSuchThread = -3;  // ESRCH
  if (owner >> 32 != process) return false;
  auto thread = static_cast<std::uint32_t>(owner);
  return arch::kernel_call(__NR_tgkill, static_cast<long>(process), thread, 0) == kNoSuchThread;
}

// Returns the data of an exited thread; null if none is found soon.
Owned* take_over(std::uint64_t self) {
  constexpr int kMaxChecks = 64;
  Owned* at = __atomic_load_n(&all, __ATOMIC_ACQUIRE);
  for (int looks = 0; at != nullptr && looks < kMaxChecks; ++looks, at = at->next) {
    std::uint64_t owner = __atomic_load_n(&at->owner, __ATOMIC_RELAXED);
    if (has_ended(owner, self >> 32) &&
        __atomic_compare_exchange_n(&at->owner, &owner, self, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
      at->calls.clear();
      return at;
    }
  }
  return nullptr;
}

// Returns null if there is no memory.
Owned* make(std::uint64_t self) {
  long mapped = arch::kernel_call(__NR_mmap, 0, sizeof(Owned), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped < 0 && mapped >= -4095) return nullptr;
  auto* made = reinterpret_cast<Owned*>(mapped);
  made->owner = self;
  made->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&all, &made->next, made, false, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED)) {
  }
  return made;
}

[[gnu::noinline]] ThreadCalls* begin() {
  auto process = static_cast<std::uint64_t>(arch::kernel_call(__NR_getpid));
  std::uint64_t self = process << 32 | static_cast<std::uint32_t>(arch::kernel_call(__NR_gettid));
  Owned* owned = take_over(self);
  if (owned == nullptr) owned = make(self);
  if (owned != nullptr) own_calls = &owned->calls;
  return own_calls;
}

inline ThreadCalls* calls_of_thread() {
  ThreadCalls* calls = own_calls;
  return calls != nullptr ? calls : begin();
}

}  // namespace

CallSites live_calls(std::uint64_t sp) {
  ThreadCalls* calls = own_calls;
  return calls != nullptr ? calls->on(sp).live(sp) : CallSites{};
}

}  // namespace reachscan::instrumented

using namespace reachscan;
using namespace reachscan::instrumented;

#pragma GCC visibility push(default)
extern "C" {

void __cyg_profile_func_enter(void* function, void* site) {
  ThreadCalls* calls = calls_of_thread();
  if (calls == nullptr) return;
  arch::Frame caller = arch::calling_frame();
  CallStack& stack = calls->on(caller.sp);
  stack.enter(function, site, caller.sp, stack.frame_end(site, caller.sp, caller.fp));
}

void __cyg_profile_func_exit(void* function, void* site) {
  ThreadCalls* calls = own_calls;
  if (calls == nullptr) return;
  std::uint64_t sp = arch::calling_frame().sp;
  calls->on(sp).leave(function, site, sp);
}

int get_tls_backtrace(void** backtrace, int most) {
  CallSites calls = live_calls(arch::calling_frame().sp);
  if (most <= 0) return 0;
  std::uint32_t count = calls.count < static_cast<std::uint32_t>(most)
                            ? calls.count
                            : static_cast<std::uint32_t>(most);
  __builtin_memcpy(backtrace, calls.sites, count * sizeof *backtrace);
  return static_cast<int>(count);
}

}  // extern "C"
#pragma GCC visibility pop
