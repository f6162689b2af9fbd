// longjmp() and its relatives: they leave functions without reporting it.
#include "arch/frames.hpp"
#include "arch/mangling.hpp"
#include "arch/thread_descriptor.hpp"
#include "instrumented/calls.hpp"
#include "recorder/process.hpp"

namespace reachscan::recorder {

namespace {

using Jump = void(std::uint64_t*, int);

constinit Next<Jump> next_long_jump("longjmp");
constinit Next<Jump> next_bsd_long_jump("_longjmp");
constinit Next<Jump> next_signal_long_jump("siglongjmp");
constinit Next<Jump> next_checked_long_jump("__longjmp_chk");

// glibc mangles it, other libraries do not. Returns 0 if it is not found.
std::uint64_t target_sp(const std::uint64_t* target) {
  constexpr std::uint64_t kLargestStack = std::uint64_t{1} << 30;
  auto own = reinterpret_cast<std::uint64_t>(__builtin_frame_address(0));
  std::uint64_t sp = target[arch::kJumpStackPointer / sizeof *target];
  if (sp - own < kLargestStack) return sp;
  if (!arch::kHasPointerGuard) return 0;
  sp = arch::unmangled(sp, arch::word_at(arch::thread_pointer() + arch::kPointerGuard));
  return sp - own < kLargestStack ? sp : 0;
}

// Functions below the stack pointer that it restores have been left.
[[noreturn]] void jump(Next<Jump>& next, std::uint64_t* target, int value) {
  std::uint64_t sp = target_sp(target);
  if (sp != 0) instrumented::live_calls(sp);
  next(target, value);
  __builtin_trap();
}

}  // namespace

}  // namespace reachscan::recorder

using namespace reachscan::recorder;

#pragma GCC visibility push(default)
extern "C" {

[[noreturn]] void longjmp(std::uint64_t* to, int value) { jump(next_long_jump, to, value); }
[[noreturn]] void _longjmp(std::uint64_t* to, int value) { jump(next_bsd_long_jump, to, value); }
[[noreturn]] void siglongjmp(std::uint64_t* to, int value) {
  jump(next_signal_long_jump, to, value);
}
[[noreturn]] void __longjmp_chk(std::uint64_t* to, int value) {
  jump(next_checked_long_jump, to, value);
}

}  // extern "C"
#pragma GCC visibility pop
