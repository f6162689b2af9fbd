// Everything specific to a processor is in a folder next to this file, and nowhere else in native/.
// CMake uses the folder named after the processor it builds for; sources include "arch/ROLE.hpp".
//
// To add a processor, create native/arch/NAME/ (NAME as in `uname -m`) with files of these names:
//
//   machine.hpp           which ELF files are its programs, and what to call them
//   address_space.hpp     page size, word of a program, bits of an address, red zone, alignment
//   registers.hpp         of a stopped thread: get, set, program counter, stack and thread pointer
//   system_calls.hpp      number, arguments, result; calls that the kernel restarts; rseq
//   system_call_gadget.S  a system call followed by a breakpoint
//   trampoline.S          clones a thread's process without the help of its tracer
//   trampoline.hpp        the parts of the trampoline and what is written into it
//   code.hpp              decodes calls before return addresses, system calls, named addresses
//   signal_frame.hpp      ucontext_t, and how to recognise the frame of a signal handler
//   thread_descriptor.hpp  shape and position of glibc's thread descriptor
//   thread_local.hpp      on which side of the thread pointer static thread-local variables are
//   mangling.hpp          how C libraries mangle pointers in a jmp_buf, and their offsets there
//   lanes.hpp             vectors of four words
//   scratch_registers.hpp  clears the registers that are dead across a call
//   instructions.hpp      breakpoint, pause, protection keys, fill, copy, for the sweeper
//   blob_entry.S          the sweeper's first instruction
//   compiler.cmake        compiler options for the sweeper
//
// The recorder and libreachscan need these, too; REACHSCAN_ONLY_HELPER builds the helper alone.
// Without the last two, the recorder cannot be put into running processes:
//
//   frames.hpp            stack frames, and the registers of unwind tables
//   kernel_calls.hpp      system calls without a C library
//   imports.hpp           GOT entries that a loader fills in with functions, stubs for them, jumps
//   moved_start.hpp       the first instructions of a function, moved elsewhere
//
// Related processors share a folder (FAMILY in compiler.cmake; arch/arm), whose files have these
// names, too.
//
// The compiler requires what is declared below and what is used elsewhere. CONTRIBUTING.md lists
// the remaining steps, outside of native/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <type_traits>

#include "arch/address_space.hpp"
#include "arch/lanes.hpp"
#include "arch/machine.hpp"
#include "arch/registers.hpp"

namespace reachscan::arch {

#ifndef REACHSCAN_ANY_PAGES
static_assert((kPage & (kPage - 1)) == 0 && kHugePage % kPage == 0 && kUserEnd % kPage == 0);
#endif
static_assert(kUserEnd <= 1ull << kAddressBits && kAddressBits < 64);
// Registers are copied, and searched word by word.
static_assert(std::is_trivially_copyable_v<Registers> && sizeof(Registers) % 8 == 0);
// The sweeper relies on a vector being half a cache line.
static_assert(sizeof(Lanes) == 32 && sizeof(Masks) == 32 && sizeof(Bytes) == 32);

}  // namespace reachscan::arch
