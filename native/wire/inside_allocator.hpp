// Whether a thread is inside the allocator. The sweeper asks this about the clone and the helper
// about the stopped target; they must agree, or what one waits for the other never sees.
//
// The allocator's own code is a known range. What it calls (brk, mmap, munmap, mremap, madvise)
// lies elsewhere in the library; no unwinding information is needed to follow those short functions
// up, since the call in front of each return address tells where it led.
#pragma once

#include <cstdint>

namespace reachscan::abi {

struct CodeRange {
  std::uint64_t start;
  std::uint64_t end;
  bool contains(std::uint64_t address) const { return address - start < end - start; }
};

struct Frame {
  std::uint64_t pc;
  std::uint64_t sp;
};

// How far up the stack a caller is looked for, and how far into a function its calls are.
constexpr unsigned kCallerWords = 64;
constexpr std::uint64_t kLongestCallee = 0x200;
// How far up the stack the frame of a signal is looked for.
constexpr unsigned kHandlerWords = 8192;

enum class Call {
  kNone,       // no call is in front of that address
  kDirect,     // one that tells its target
  kElsewhere,  // one that leads anywhere: by a register, a table, or a stub that jumps
};

// `read(address, buffer, bytes)` tells whether all of them could be read.
template <typename Read>
bool is_stub(std::uint64_t target, Read read) {
  unsigned char code[7];
  if (!read(target, code, sizeof code)) return false;
  const unsigned char* jump = code[0] == 0xf3 ? code + 4 : code;  // behind endbr64
  return jump[0] == 0xff && jump[1] == 0x25;
}

// What kind of call returns to `address`.
template <typename Read>
Call call_before(std::uint64_t address, std::uint64_t& target, Read read) {
  unsigned char code[7];
  if (!read(address - sizeof code, code, sizeof code)) return Call::kNone;
  if (code[2] == 0xe8) {
    std::int32_t distance;
    __builtin_memcpy(&distance, code + 3, sizeof distance);
    target = address + static_cast<std::uint64_t>(std::int64_t{distance});
    return is_stub(target, read) ? Call::kElsewhere : Call::kDirect;
  }
  for (unsigned at = 0; at < sizeof code - 1; ++at)
    if (code[at] == 0xff && (code[at + 1] >> 3 & 7) == 2) return Call::kElsewhere;
  return Call::kNone;
}

// Whether the allocator called what the thread is in. Words that earlier calls left on the stack do
// not link to where the thread is; if one does by chance, the thread is let run for nothing. What
// is on top of the stack is the return address itself, if it is one: most of these functions push
// nothing.
template <typename Read>
bool is_called_by(const CodeRange& allocator, Frame frame, Read read) {
  for (unsigned i = 0; i < kCallerWords; ++i) {
    std::uint64_t word = 0, target = 0;
    if (!read(frame.sp + 8ull * i, &word, sizeof word)) return false;
    Call call = call_before(word, target, read);
    if (i == 0 && call == Call::kElsewhere) return allocator.contains(word);
    if (call != Call::kDirect || frame.pc - target >= kLongestCallee) continue;
    if (allocator.contains(word)) return true;
    frame.pc = word;
  }
  return false;
}

template <typename Read>
bool is_inside(const CodeRange& allocator, Frame frame, Read read) {
  return allocator.contains(frame.pc) || is_called_by(allocator, frame, read);
}

// Whether a signal handler that has not returned interrupted the thread inside the allocator. The
// kernel puts the thread's registers on the stack, behind the address of the code that ends a
// handler: mov rax, 15; syscall.
template <typename Read>
bool is_interrupted_inside(const CodeRange& allocator, std::uint64_t sp, Read read) {
  constexpr unsigned char kEndOfHandler[9] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05};
  constexpr std::uint64_t kSavedSp = 8 + 160, kSavedPc = 8 + 168;
  for (unsigned i = 0; i < kHandlerWords; ++i, sp += 8) {
    std::uint64_t word = 0;
    unsigned char code[sizeof kEndOfHandler];
    Frame frame{};
    if (!read(sp, &word, sizeof word)) return false;
    if (!read(word, code, sizeof code) || __builtin_memcmp(code, kEndOfHandler, sizeof code) != 0)
      continue;
    if (read(sp + kSavedPc, &frame.pc, 8) && read(sp + kSavedSp, &frame.sp, 8) &&
        is_inside(allocator, frame, read))
      return true;
  }
  return false;
}

}  // namespace reachscan::abi
