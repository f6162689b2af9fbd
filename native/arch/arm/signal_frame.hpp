// What a signal handler has on the stack while it runs, and what getcontext() saves: ucontext_t.
#pragma once

#include <cstdint>

#include "arch/address_space.hpp"

namespace reachscan::arch {

// 32-bit kernels that know iWMMXt write a record for it before that of the vector registers: an
// empty one (DUMMY_MAGIC) where it is not used.
constexpr std::uint64_t kOtherRecordBytes = 160;
constexpr bool is_other_record(std::uint64_t record) {
  auto type = static_cast<std::uint32_t>(record);
  return record >> 32 == kOtherRecordBytes && (type == 0xb0d9ed01 || type == 0x12ef842a);
}

// Offsets in ucontext_t of programs with words of this size (Linux): its link, its stack and its
// registers. kBytes are enough to recognise one.
template <unsigned kBytesOfWord>
struct Context;

template <>
struct Context<8> {
  static constexpr std::uint64_t kLink = 8, kStack = 16, kStackSize = 32;
  static constexpr std::uint64_t kLinkRegister = 424;
  static constexpr std::uint64_t kStackPointer = 432, kProgramCounter = 440;
  static constexpr std::uint64_t kRecords = 464, kBytes = 472;
};

template <>
struct Context<4> {
  static constexpr std::uint64_t kLink = 4, kStack = 8, kStackSize = 16;
  static constexpr std::uint64_t kLinkRegister = 88;
  static constexpr std::uint64_t kStackPointer = 84, kProgramCounter = 92;
  static constexpr std::uint64_t kRecords = 232, kBytes = 240 + kOtherRecordBytes;
};

// Records follow the registers, vector registers first. Each starts with its type and its length
// (FPSIMD_MAGIC, 528; VFP_MAGIC, 288). The kernel writes this one first, and getcontext() as well.
template <unsigned kBytesOfWord>
constexpr std::uint64_t kVectorRecord = 528ull << 32 | 0x46508001;
template <>
inline constexpr std::uint64_t kVectorRecord<4> = 288ull << 32 | 0x56465001;

inline bool has_vector_record(std::uint64_t context) {
  std::uint64_t record, at = context + Context<kWord>::kRecords;
  __builtin_memcpy(&record, reinterpret_cast<const void*>(at), sizeof record);
  if (kWord == 4 && is_other_record(record))
    __builtin_memcpy(&record, reinterpret_cast<const void*>(at + kOtherRecordBytes), sizeof record);
  return record == kVectorRecord<kWord>;
}

// Returns whether readable memory may be what getcontext() of a 32-bit program left, which writes
// no record: it is resumed with a result of 0, at the address that is also in the link register.
inline bool is_short_context(std::uint64_t at) {
  constexpr std::uint64_t kResult = 32;
  std::uint32_t result, link, pc;
  __builtin_memcpy(&result, reinterpret_cast<const void*>(at + kResult), sizeof result);
  __builtin_memcpy(&link, reinterpret_cast<const void*>(at + Context<4>::kLinkRegister),
                   sizeof link);
  __builtin_memcpy(&pc, reinterpret_cast<const void*>(at + Context<4>::kProgramCounter), sizeof pc);
  return result == 0 && link == pc;
}

// Returns whether readable memory is marked as a context.
inline bool is_marked_context(std::uint64_t at) {
  return has_vector_record(at) || (kWord == 4 && is_short_context(at));
}

// Returns whether the frame of a handler without SA_SIGINFO may be at `at`. In 32-bit programs,
// such a frame does not tell its stack.
inline bool is_plain_frame(std::uint64_t at) { return kWord == 4 && has_vector_record(at); }

// Where that word is, from the context on.
constexpr std::int64_t kFrameWordFromContext = Context<8>::kRecords;

// Returns the context of the signal frame that this word at `at` belongs to, 0 if there is none.
template <unsigned kBytesOfWord = kWord, typename Read>
std::uint64_t context_of_frame(std::uint64_t at, std::uint64_t word, Read read) {
  constexpr std::uint64_t kRecord = kVectorRecord<kBytesOfWord>;
  std::uint32_t length = 0;
  if (word != (kBytesOfWord == 8 ? kRecord : kRecord & 0xffffffff)) return 0;
  if (kBytesOfWord == 4 && (!read(at + 4, &length, sizeof length) || length != kRecord >> 32))
    return 0;
  std::uint64_t before = 0;
  if (kBytesOfWord == 4 && read(at - kOtherRecordBytes, &before, sizeof before) &&
      is_other_record(before))
    at -= kOtherRecordBytes;
  return at - Context<kBytesOfWord>::kRecords;
}

// Reads the interrupted value of the link register. Returns false if it cannot be read.
template <unsigned kBytesOfWord = kWord, typename Read>
bool read_link_register(std::uint64_t context, std::uint64_t& link, Read read) {
  link = 0;
  return read(context + Context<kBytesOfWord>::kLinkRegister, &link, kBytesOfWord);
}

}  // namespace reachscan::arch
