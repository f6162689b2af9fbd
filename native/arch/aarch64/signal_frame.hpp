// What a signal handler has on the stack while it runs, and what getcontext() saves: ucontext_t.
#pragma once

#include <cstdint>

namespace reachscan::arch {

// Offsets in ucontext_t of programs with words of this size (Linux): its link, its stack and its
// registers. kBytes are enough to recognise one.
template <unsigned kBytesOfWord>
struct Context {  // only for words of eight bytes
  static constexpr std::uint64_t kLink = 8, kStack = 16, kStackSize = 32;
  static constexpr std::uint64_t kStackPointer = 432, kProgramCounter = 440;
  static constexpr std::uint64_t kBytes = 472;
};

// Records follow the registers, vector registers first. Each starts with its type and its length
// (FPSIMD_MAGIC, 528). Both the kernel and getcontext() write this one first.
constexpr std::uint64_t kContextRecords = 464;
constexpr std::uint64_t kVectorRecord = 528ull << 32 | 0x46508001;

// Returns whether readable memory is marked as a context.
inline bool is_marked_context(std::uint64_t at) {
  std::uint64_t record;
  __builtin_memcpy(&record, reinterpret_cast<const void*>(at + kContextRecords), sizeof record);
  return record == kVectorRecord;
}

// Returns whether only its registers identify the frame of a handler at `at`: never on this
// processor.
inline bool has_segments(std::uint64_t) { return false; }

// Returns the context of the signal frame that this word at `at` belongs to, 0 if there is none.
template <unsigned kBytesOfWord = 8, typename Read>
std::uint64_t context_of_frame(std::uint64_t at, std::uint64_t word, Read) {
  return word == kVectorRecord ? at - kContextRecords : 0;
}

// Reads the interrupted value of the link register. Returns false if it cannot be read.
template <typename Read>
bool read_link_register(std::uint64_t context, std::uint64_t& link, Read read) {
  constexpr std::uint64_t kLinkRegister = 424;
  return read(context + kLinkRegister, &link, sizeof link);
}

}  // namespace reachscan::arch
