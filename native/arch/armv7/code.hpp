// The little machine code that is decoded (arch/arm/short_code.hpp). `read(address, buffer, bytes)`
// returns whether it read all of them.
#pragma once

#include <cstdint>

#include "arch/arm/decoded.hpp"
#include "arch/arm/short_code.hpp"

namespace reachscan::arch {

// Returns the kind of call that returns to `address`.
template <unsigned kBytesOfWord = 4, typename Read>
Call call_before(std::uint64_t address, std::uint64_t& target, Read read) {
  return short_call_before(address, target, read);
}

// A leaf function that keeps nothing on the stack returns to the link register.
constexpr bool kReturnAddressInRegister = true;

// Does nothing: no function makes system calls on behalf of the allocator's users here.
template <unsigned kBytesOfWord, typename Read>
void leave_system_call(std::uint64_t&, std::uint64_t&, Read) {}

// Returns the system call that a thread will make (or restart) at `pc`, or has made right before
// it.
template <typename Read>
SystemCall system_call_at(std::uint64_t pc, Read read) {
  return short_system_call_at(pc, read);
}

// No code names variables by their distance from the global offset table.
constexpr bool kNamesFromTable = false;

// Instructions start at multiples of this.
constexpr std::uint64_t kCodeAlignment = 2;
// The most bytes that named_address() reads.
constexpr std::uint64_t kNamingBytes = kConstantReach;

// Returns the address that instructions at `at` form; 0 if there is none.
inline std::uint64_t named_address(std::uint64_t at) { return short_named_address(at); }

// The same for what they read or write. Only allocators of 64-bit programs are found so.
inline std::uint64_t used_address(std::uint64_t) { return 0; }

}  // namespace reachscan::arch
