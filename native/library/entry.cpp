// Entry points of the library, and the part of the stack above them.
#include "library/entry.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>

#include "arch/code.hpp"
#include "arch/scratch_registers.hpp"

// The start of the main thread's stack, if the C library exports it.
extern "C" [[gnu::weak]] void* __libc_stack_end;

namespace reachscan::library {
namespace {

constexpr std::uintptr_t kWord = sizeof(void*);
// From the library's destructors up to the frame that called main().
constexpr std::uintptr_t kMaxExitStack = 64 << 10;
constexpr std::uintptr_t kExitCode = 128;  // more than exit() has
constexpr std::uintptr_t kExitFrame = 8 * kWord;

[[gnu::tls_model("initial-exec")]] thread_local const void* program_ends = nullptr;

std::uintptr_t word_at(std::uintptr_t slot) {
  return *reinterpret_cast<const volatile std::uintptr_t*>(slot);
}

// Returns whether the C library itself called `function`, which is its own, from the call that
// returns to `address`.
bool is_call_to_own(std::uintptr_t address, std::uintptr_t function) {
  Dl_info called{}, caller{};
  if (dladdr(reinterpret_cast<void*>(function), &called) == 0 ||
      dladdr(reinterpret_cast<void*>(address), &caller) == 0 ||
      called.dli_fbase != caller.dli_fbase)
    return false;
  std::uint64_t target = 0;
  auto read = [](std::uint64_t from, void* to, std::size_t bytes) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return true;
  };
  return arch::call_before(address, target, read) == arch::Call::kDirect && target == function;
}

// The frame of the exit() that the C library called after main() returned; 0 if there is none.
std::uintptr_t frame_of_exit() {
  auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  std::uintptr_t top = 0;
  if (&__libc_stack_end != nullptr) top = reinterpret_cast<std::uintptr_t>(__libc_stack_end);
  auto leave = reinterpret_cast<std::uintptr_t>(dlsym(RTLD_DEFAULT, "exit"));
  if (leave == 0 || top <= here || top - here > kMaxExitStack) return 0;
  for (std::uintptr_t slot = here; slot < top; slot += kWord) {
    if (word_at(slot) - leave - 1 >= kExitCode) continue;
    for (std::uintptr_t next = slot + kWord; next < top && next <= slot + kExitFrame; next += kWord)
      if (is_call_to_own(word_at(next), leave)) return next;
  }
  return 0;
}

}  // namespace

template <typename Result>
[[gnu::noinline]] Result enter(Result (*work)(const void*, void*), const void* a, void* b) {
  __builtin_unwind_init();
  auto* frame = static_cast<const char*>(__builtin_frame_address(0));
  bool outermost = program_ends == nullptr;
  if (outermost) program_ends = frame - arch::kRegistersBelowFrame * kWord;
  Result result = work(a, b);
  if (outermost) program_ends = nullptr;
  return result;
}
template int enter(int (*)(const void*, void*), const void*, void*);
template bool enter(bool (*)(const void*, void*), const void*, void*);

void enter_at_exit(int (*work)(const void*, void*)) {
  program_ends = reinterpret_cast<const void*>(frame_of_exit());
  enter(work, nullptr, nullptr);
  program_ends = nullptr;
}

const void* end_of_program() { return program_ends; }

}  // namespace reachscan::library
