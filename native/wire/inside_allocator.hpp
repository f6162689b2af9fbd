// Whether a thread is inside the allocator. The sweeper checks the clone and the helper checks the
// stopped target; they must agree, or the helper would wait for a state that the sweeper never
// sees.
//
// The allocator's own code is a known range. The functions it calls (brk, mmap, munmap, mremap,
// madvise) are elsewhere in the library. They are short, so no unwind table is needed to follow
// them up: the call before each return address shows where it led.
#pragma once

#include <cstdint>

#include "arch/code.hpp"
#include "arch/signal_frame.hpp"

namespace reachscan::abi {

struct CodeRange {
  std::uint64_t start;
  std::uint64_t end;
  bool contains(std::uint64_t address) const { return address - start < end - start; }
};

// The code of several allocators, or several parts of one.
struct CodeRanges {
  static constexpr unsigned kMax = 64;
  std::uint64_t count;
  CodeRange ranges[kMax];

  bool contains(std::uint64_t address) const {
    for (std::uint64_t i = 0; i < count && i < kMax; ++i)
      if (ranges[i].contains(address)) return true;
    return false;
  }

  void add(CodeRange range) {
    if (count < kMax) ranges[count++] = range;
  }
};

struct Frame {
  std::uint64_t pc;
  std::uint64_t sp;
  std::uint64_t link;  // the link register, 0 if the processor has none
};

// How far up the stack a caller is searched for, and how far into a function its calls may be.
constexpr unsigned kCallerWords = 64;
constexpr std::uint64_t kMaxCalleeBytes = 0x200;
// How far up the stack the frame of a signal handler is searched for.
constexpr unsigned kHandlerWords = 8192;

// Whether the allocator called the function that the thread is in. Words that earlier calls left on
// the stack do not link to the thread's position; if one does by chance, the thread is resumed once
// for nothing. The word on top of the stack, or in the link register, is the return address itself,
// if it is one: most of these functions push nothing. But a link register may also be stale.
//
// TailCalls: a function of the allocator may leave by a jump into another library. Its caller then
// links to nothing, so it must suffice that both belong to the allocator. But if the program itself
// called that library, through a stub, any such words further down the stack than its call are
// stale.
enum class TailCalls { kNo, kYes };

template <TailCalls kTail = TailCalls::kNo, unsigned kWord = arch::kWord, typename Read>
bool is_called_by(const CodeRanges& allocator, Frame frame, Read read) {
  bool tail = false;
  arch::leave_system_call<kWord>(frame.pc, frame.sp, read);
  constexpr unsigned kTop = arch::kReturnAddressInRegister ? 0 : 1;
  for (unsigned i = kTop; i <= kCallerWords; ++i) {
    std::uint64_t word = i == 0 ? frame.link : 0, target = 0;
    if (i > 0 && !read(frame.sp + std::uint64_t{kWord} * (i - 1), &word, kWord)) break;
    arch::Call call = arch::call_before<kWord>(word, target, read);
    bool direct = call == arch::Call::kDirect;
    bool known = direct || call == arch::Call::kThroughStub;
    bool on_top = i == kTop && !direct && call != arch::Call::kNone;
    bool linked = known && frame.pc - target < kMaxCalleeBytes;
    bool is_own = allocator.contains(word);
    // The function it called last has left by a jump, as free() does to munmap().
    bool jumped = i == kTop && direct && allocator.contains(target);
    if ((linked || on_top || jumped) && is_own) return true;
    if (kTail == TailCalls::kYes && direct && is_own && allocator.contains(target)) tail = true;
    if (linked && !direct) tail = false;
    if (linked) frame.pc = word;
  }
  return tail;
}

template <unsigned kWord = arch::kWord, typename Read>
bool is_inside(const CodeRanges& allocator, Frame frame, Read read) {
  return allocator.contains(frame.pc) ||
         is_called_by<TailCalls::kNo, kWord>(allocator, frame, read);
}

// Returns whether a signal handler that has not returned interrupted the thread inside the
// allocator. The kernel saves the thread's registers on the stack.
template <unsigned kWord = arch::kWord, typename Read>
bool is_interrupted_inside(const CodeRanges& allocator, std::uint64_t sp, Read read) {
  using Context = arch::Context<kWord>;
  for (unsigned i = 0; i < kHandlerWords; ++i, sp += kWord) {
    std::uint64_t word = 0;
    Frame frame{};
    if (!read(sp, &word, kWord)) return false;
    std::uint64_t context = arch::context_of_frame<kWord>(sp, word, read);
    if (context != 0 && read(context + Context::kProgramCounter, &frame.pc, kWord) &&
        read(context + Context::kStackPointer, &frame.sp, kWord) &&
        arch::read_link_register<kWord>(context, frame.link, read) &&
        is_inside<kWord>(allocator, frame, read))
      return true;
  }
  return false;
}

}  // namespace reachscan::abi
