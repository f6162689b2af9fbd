// What a signal handler leaves on the stack while it runs, and what getcontext() saves: ucontext_t.
#pragma once

#include <cstdint>

namespace reachscan::arch {

// In ucontext_t of programs with such words (Linux): what it links to, its stack, its registers. So
// many bytes tell whether it is one.
template <unsigned kBytesOfWord>
struct Context {  // only programs with words of eight bytes are known
  static constexpr std::uint64_t kLink = 8, kStack = 16, kStackSize = 32;
  static constexpr std::uint64_t kStackPointer = 432, kProgramCounter = 440;
  static constexpr std::uint64_t kBytes = 472;
};

// Behind the registers are records, the vector registers first: what they are and how long
// (FPSIMD_MAGIC, 528). The kernel and getcontext() both begin with it.
constexpr std::uint64_t kContextRecords = 464;
constexpr std::uint64_t kVectorRecord = 528ull << 32 | 0x46508001;

// Whether memory that can be read is marked as a context.
inline bool is_marked_context(std::uint64_t at) {
  std::uint64_t record;
  __builtin_memcpy(&record, reinterpret_cast<const void*>(at + kContextRecords), sizeof record);
  return record == kVectorRecord;
}

// Whether nothing but registers tells the frame of a handler at `at`: only in other programs.
inline bool has_segments(std::uint64_t) { return false; }

// The context in the frame of a signal that this word at `at` belongs to, 0 if it tells of none.
template <unsigned kBytesOfWord = 8, typename Read>
std::uint64_t context_of_frame(std::uint64_t at, std::uint64_t word, Read) {
  return word == kVectorRecord ? at - kContextRecords : 0;
}

// What the link register was; false if it cannot be read.
template <typename Read>
bool read_link_register(std::uint64_t context, std::uint64_t& link, Read read) {
  constexpr std::uint64_t kLinkRegister = 424;
  return read(context + kLinkRegister, &link, sizeof link);
}

}  // namespace reachscan::arch
