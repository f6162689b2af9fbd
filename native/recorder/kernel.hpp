// The recorder's system calls. None of this allocates, or touches errno. A program that installs a
// seccomp filter may be killed for any call that it would not make itself, so none is made from
// then on: each fails.
#pragma once

#include <errno.h>
#include <linux/prctl.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "arch/kernel_calls.hpp"

namespace reachscan::recorder {

inline long as_word(const volatile void* pointer) { return reinterpret_cast<long>(pointer); }

inline constinit bool confined = false;

inline bool is_confined() { return __atomic_load_n(&confined, __ATOMIC_RELAXED); }
inline void confine(bool now) { __atomic_store_n(&confined, now, __ATOMIC_RELAXED); }

template <typename... Arguments>
long call(long number, Arguments... arguments) {
  return is_confined() ? -EPERM : arch::kernel_call(number, arguments...);
}

inline bool failed(long result) { return result < 0 && result >= -4095; }

// Returns zeroed memory that is backed only once written to; null if there is none.
inline void* map_memory(std::size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  long address = call(__NR_mmap, 0, static_cast<long>(bytes), protection,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return failed(address) ? nullptr : reinterpret_cast<void*>(address);
}

inline void unmap_memory(void* address, std::size_t bytes) {
  call(__NR_munmap, as_word(address), static_cast<long>(bytes));
}

inline bool allow_access(void* address, std::size_t bytes) {
  return call(__NR_mprotect, as_word(address), static_cast<long>(bytes), PROT_READ | PROT_WRITE) ==
         0;
}

// Kernels that cannot name a mapping (before 5.17) leave it unnamed.
inline void name_mapping(void* address, std::size_t bytes, const char* name) {
  constexpr long kSetName = 0x53564d41, kAnonymousName = 0;
  call(__NR_prctl, kSetName, kAnonymousName, as_word(address), static_cast<long>(bytes),
       as_word(name));
}

// The id of the process, its parent, the thread; that of no process that can be meant if it is
// confined.
constexpr std::uint32_t kNobody = ~0u;

inline std::uint32_t id_of(long result) {
  return failed(result) ? kNobody : static_cast<std::uint32_t>(result);
}

inline std::uint32_t process_id() { return id_of(call(__NR_getpid)); }
inline std::uint32_t parent_id() { return id_of(call(__NR_getppid)); }
inline std::uint32_t thread_id() { return id_of(call(__NR_gettid)); }

inline void read_thread_name(char (&name)[16]) { call(__NR_prctl, PR_GET_NAME, as_word(name)); }

// Empty if it cannot be read; truncated if it is longer.
template <std::size_t N>
void read_program_path(char (&path)[N]) {
  constexpr long kFromHere = -100;  // AT_FDCWD
  long bytes = call(__NR_readlinkat, kFromHere, as_word("/proc/self/exe"), as_word(path), N - 1);
  path[failed(bytes) ? 0 : bytes] = 0;
}

// Lets that process and its descendants attach to this one, where only ancestors may (Yama).
// Kernels without such a rule refuse the call.
inline void permit_tracing(std::uint32_t pid) { call(__NR_prctl, PR_SET_PTRACER, pid); }

// Returns the signals that were blocked before. In a thread that another one has confined
// meanwhile, these two must still belong together.
inline std::uint64_t block_signals() {
  constexpr long kSetMask = 2;
  std::uint64_t all = ~std::uint64_t{0}, before = 0;
  arch::kernel_call(__NR_rt_sigprocmask, kSetMask, as_word(&all), as_word(&before), sizeof all);
  return before;
}

inline void restore_signals(std::uint64_t before) {
  constexpr long kSetMask = 2;
  arch::kernel_call(__NR_rt_sigprocmask, kSetMask, as_word(&before), 0, sizeof before);
}

inline void sleep_nanoseconds(long nanoseconds) {
  const long time[] = {0, nanoseconds};
  call(__NR_nanosleep, as_word(time));
}

inline void close_file(long descriptor) { call(__NR_close, descriptor); }

}  // namespace reachscan::recorder
