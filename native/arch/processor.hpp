// Everything that differs by processor is in a folder of this one, and nowhere else in native/.
// CMake takes the folder that is called like the processor it builds for; sources include
// "arch/ROLE.hpp".
//
// To add a processor, make native/arch/NAME/ (NAME as `uname -m` says) with files of these names:
//
//   machine.hpp           which ELF files are its programs, and what to call them
//   address_space.hpp     page size, word of a program, bits of an address, red zone
//   registers.hpp         of a stopped thread: get, set, program counter, stack and thread pointer
//   system_calls.hpp      number, arguments, result; calls that the kernel would restart; rseq
//   system_call_gadget.S  a system call, and a breakpoint behind it
//   trampoline.S          clones a thread's process without the help of its tracer
//   trampoline.hpp        where its parts are, and what is written into it
//   code.hpp              call in front of a return address, system call, instruction with an
//                         address
//   signal_frame.hpp      ucontext_t, and how to tell the frame of a signal handler
//   thread_descriptor.hpp  shape of glibc's thread descriptor, and where it lies
//   thread_local.hpp      on which side of the thread pointer static thread-local variables lie
//   mangling.hpp          how C libraries hide pointers in a jmp_buf, and where they are there
//   lanes.hpp             vectors of four words
//   scratch_registers.hpp  clears those that are nobody's at a call
//   frames.hpp, kernel_calls.hpp  frames of functions, system calls: for the recorder only
//   imports.hpp           words that a loader fills in with functions, and stubs in their place
//   instructions.hpp      breakpoint, pause, fill, copy, for the sweeper
//   blob_entry.S          the sweeper's first instruction
//   compiler.cmake        options for the sweeper
//
// The compiler demands what is declared below and what is used elsewhere. CONTRIBUTING.md says what
// else there is to do, outside of native/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <type_traits>

#include "arch/address_space.hpp"
#include "arch/lanes.hpp"
#include "arch/machine.hpp"
#include "arch/registers.hpp"

namespace reachscan::arch {

static_assert((kPage & (kPage - 1)) == 0 && kHugePage % kPage == 0 && kUserEnd % kPage == 0);
static_assert(kUserEnd <= 1ull << kAddressBits && kAddressBits < 64);
// They are copied, and searched word by word.
static_assert(std::is_trivially_copyable_v<Registers> && sizeof(Registers) % 8 == 0);
// One of them is half a cache line: the sweeper counts on it.
static_assert(sizeof(Lanes) == 32 && sizeof(Masks) == 32 && sizeof(Bytes) == 32);

}  // namespace reachscan::arch
