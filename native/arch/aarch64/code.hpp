// The little machine code that is decoded: calls before a return address, system calls around a
// program counter, and instructions that name an address. `read(address, buffer, bytes)` returns
// whether it read all of them.
#pragma once

#include <cstdint>

#include "arch/address_space.hpp"
#include "arch/arm/decoded.hpp"
#include "arch/arm/short_code.hpp"

namespace reachscan::arch {

constexpr std::uint32_t kSystemCallInstruction = 0xd4000001;  // svc #0

// Returns the page that an adrp at `at` yields; 0 if it is not one.
inline std::uint64_t page_of_adrp(std::uint64_t at, std::uint32_t instruction) {
  if ((instruction & 0x9f000000) != 0x90000000) return 0;
  std::uint64_t pages = (instruction >> 5 & 0x7ffff) << 2 | (instruction >> 29 & 3);
  constexpr unsigned kUnused = 64 - 21;
  auto distance = static_cast<std::int64_t>(pages << kUnused) >> kUnused;
  return (at & ~0xfffull) + (static_cast<std::uint64_t>(distance) << 12);
}

// Returns the address that an instruction adds up, or reads 64 bits from, if `base` is its base
// register and holds `page`; otherwise 0. With `any_access`, any address it reads or writes.
inline std::uint64_t address_on_page(std::uint32_t instruction, std::uint64_t page, unsigned base,
                                     bool any_access) {
  if ((instruction >> 5 & 31) != base) return 0;
  std::uint64_t immediate = instruction >> 10 & 0xfff;
  if ((instruction & 0xffc00000) == 0x91000000) return page + immediate;         // add
  if ((instruction & 0xffc00000) == 0xf9400000) return page + (immediate << 3);  // ldr x
  bool is_access = (instruction & 0x3f000000) == 0x39000000;                     // ldr, str
  return any_access && is_access ? page + (immediate << (instruction >> 30)) : 0;
}

// Replaces `target`, the address of a stub, by where the stub leads. Returns false if it is not a
// stub.
template <typename Read>
bool follow_stub(std::uint64_t& target, Read read) {
  constexpr std::uint32_t kLandingPad = 0xd503245f;  // bti c
  constexpr unsigned kScratch = 16;                  // x16
  std::uint32_t code[3];
  if (!read(target, code, sizeof code)) return false;
  unsigned first = code[0] == kLandingPad ? 1 : 0;
  std::uint64_t page = page_of_adrp(target + first * kInstructionBytes, code[first]);
  bool loads = (code[first + 1] & 0xffc0001f) == 0xf9400011;  // ldr x17
  if (page == 0 || (code[first] & 31) != kScratch || !loads) return false;
  std::uint64_t slot = address_on_page(code[first + 1], page, kScratch, false);
  if (slot == 0) return false;
  target = 0;
  read(slot, &target, sizeof target);
  return true;
}

// Returns the kind of call that returns to `address`.
template <unsigned kBytesOfWord = kWord, typename Read>
Call call_before(std::uint64_t address, std::uint64_t& target, Read read) {
  if constexpr (kBytesOfWord == 4) return short_call_before(address, target, read);
  std::uint64_t at = address - kInstructionBytes;
  std::uint32_t code;
  if (address % kInstructionBytes != 0 || !read(at, &code, sizeof code)) return Call::kNone;
  if ((code & 0xfffffc1f) == 0xd63f0000) return Call::kElsewhere;  // blr
  if ((code & 0xfc000000) != 0x94000000) return Call::kNone;       // bl
  constexpr unsigned kUnused = 64 - 26;
  auto distance = static_cast<std::int64_t>(std::uint64_t{code} << kUnused) >> (kUnused - 2);
  target = at + static_cast<std::uint64_t>(distance);
  return follow_stub(target, read) ? Call::kThroughStub : Call::kDirect;
}

// A leaf function that keeps nothing on the stack returns to the link register.
constexpr bool kReturnAddressInRegister = true;

// Does nothing: no function makes system calls on behalf of others here.
template <unsigned kBytesOfWord, typename Read>
void leave_system_call(std::uint64_t&, std::uint64_t&, Read) {}

// Returns the system call that a thread will make (or restart) at `pc`, or has made right before
// it. The kernel rewinds interrupted threads to the instruction itself. Wrappers load the number
// shortly before it: mov x8, imm16.
template <typename Read>
SystemCall system_call_at(std::uint64_t pc, Read read) {
  if constexpr (kWord == 4) return short_system_call_at(pc, read);
  constexpr unsigned kInstructionsSearched = 6;
  std::uint32_t code[2];
  if (!read(pc - kInstructionBytes, code, sizeof code)) return {false, false, 0};
  if (code[1] != kSystemCallInstruction) pc -= kInstructionBytes;
  if (code[0] != kSystemCallInstruction && code[1] != kSystemCallInstruction)
    return {false, false, 0};
  for (unsigned back = 1; back <= kInstructionsSearched; ++back) {
    if (!read(pc - back * kInstructionBytes, code, sizeof code[0])) break;
    if ((code[0] & 0xffe0001f) == 0xd2800008) return {true, true, code[0] >> 5 & 0xffff};
  }
  return {true, false, 0};
}

// No code names variables by their distance from the global offset table.
constexpr bool kNamesFromTable = false;

// Instructions start at multiples of this.
constexpr std::uint64_t kCodeAlignment = kWord == 8 ? kInstructionBytes : 2;
// The most bytes that named_address() reads: compilers put other instructions between the two that
// form an address.
constexpr std::uint64_t kNamingBytes = kWord == 8 ? 8 * kInstructionBytes : kConstantReach;

// Returns the address that an adrp at `at` and a following instruction form; 0 if there is none.
inline std::uint64_t composed_address(std::uint64_t at, bool any_access) {
  const auto* code = reinterpret_cast<const std::uint32_t*>(at);
  std::uint64_t page = page_of_adrp(at, code[0]);
  if (page == 0) return 0;
  for (unsigned i = 1; i < 8; ++i)
    if (std::uint64_t address = address_on_page(code[i], page, code[0] & 31, any_access))
      return address;
  return 0;
}

inline std::uint64_t named_address(std::uint64_t at) {
  return kWord == 8 ? composed_address(at, false) : short_named_address(at);
}

// The same for what the second instruction reads or writes.
inline std::uint64_t used_address(std::uint64_t at) { return composed_address(at, true); }

}  // namespace reachscan::arch
