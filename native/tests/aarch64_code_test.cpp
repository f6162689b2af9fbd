// How aarch64 machine code is decoded, wherever the tests run.
#include <cstring>

#include "arch/aarch64/code.hpp"
#include "arch/arm/short_code.hpp"
#include "check.hpp"

namespace reachscan::tests {
namespace {

constexpr std::uint64_t kFunction = 0x100, kCaller = 0x200, kStub = 0x300;  // in the image
constexpr std::uint64_t kNamed = 0x4040, kUsed = 0x5018, kSlot = 0x6028;
constexpr std::uint32_t kMunmap = 215;

constexpr std::uint32_t kFunctionCode[] = {
    0xd503245f,  // bti c
    0xd2801ae8,  // mov x8, #215
    0xd4000001,  // svc #0
    0xd65f03c0,  // ret
};
constexpr std::uint32_t kCallerCode[] = {
    0x90000033,  // adrp x19, kNamed
    0xaa0203e1,  // mov x1, x2
    0x91010273,  // add x19, x19, #0x40
    0xb0000023,  // adrp x3, kUsed
    0xb9001861,  // str w1, [x3, #0x18]
    0x97ffffbb,  // bl kFunction
    0x9400003a,  // bl kStub
    0xd63f0060,  // blr x3
    0xd65f03c0,  // ret
};
constexpr std::uint32_t kStubCode[] = {
    0xd0000030,  // adrp x16, kSlot
    0xf9401611,  // ldr x17, [x16, #0x28]
    0x9100a210,  // add x16, x16, #0x28
    0xd61f0220,  // br x17
};

// The same in a 32-bit program, at the same places.
constexpr std::uint32_t kShortMunmap = 91, kShortMprotect = 125;
constexpr std::uint16_t kThumbFunctionCode[] = {
    0xb580,  // push {r7, lr}
    0x275b,  // movs r7, #91
    0xdf00,  // svc 0
    0xbd80,  // pop {r7, pc}
};
constexpr std::uint16_t kThumbCallerCode[] = {
    0x4b05,          // ldr r3, [pc, #20]
    0x4608,          // mov r0, r1
    0x447b,          // add r3, pc: kNamed
    0xf8df, 0x9014,  // ldr.w r9, [pc, #20]
    0x44f9,          // add r9, pc: kUsed
    0xf7ff, 0xff78,  // bl kFunction
    0xf000, 0xf876,  // bl kStub
    0x4798,          // blx r3
    0x4770,          // bx lr
    0x3e38, 0,       // kNamed, from there
    0x4e0a, 0,       // kUsed, from there
};
constexpr std::uint32_t kArmStubCode[] = {
    0xe28fc600,  // add ip, pc, #0, 12
    0xe28cca05,  // add ip, ip, #0x5000
    0xe5bcfd20,  // ldr pc, [ip, #0xd20]!: kSlot
    0xebfffffb,  // bl kStub
    0xe3a0707d,  // mov r7, #125
    0xef000000,  // svc 0
};

alignas(4096) unsigned char image[0x8000];

std::uint64_t at(std::uint64_t offset) { return reinterpret_cast<std::uint64_t>(image) + offset; }

bool read(std::uint64_t address, void* buffer, std::size_t length) {
  if (address < at(0) || address + length > at(sizeof image)) return false;
  std::memcpy(buffer, reinterpret_cast<const void*>(address), length);
  return true;
}

void fill_image() {
  std::memcpy(image + kFunction, kFunctionCode, sizeof kFunctionCode);
  std::memcpy(image + kCaller, kCallerCode, sizeof kCallerCode);
  std::memcpy(image + kStub, kStubCode, sizeof kStubCode);
  std::uint64_t function = at(kFunction);
  std::memcpy(image + kSlot, &function, sizeof function);
}

CASE(addresses_are_put_together_from_two_instructions) {
  fill_image();
  CHECK_EQ(arch::named_address(at(kCaller)), at(kNamed));
  CHECK_EQ(arch::used_address(at(kCaller)), at(kNamed));
  CHECK_EQ(arch::named_address(at(kCaller + 12)), 0u);  // the address is only stored to
  CHECK_EQ(arch::used_address(at(kCaller + 12)), at(kUsed));
  CHECK_EQ(arch::used_address(at(kCaller + 4)), 0u);
}

CASE(calls_tell_where_they_lead) {
  fill_image();
  std::uint64_t target = 0;
  CHECK(arch::call_before(at(kCaller + 24), target, read) == arch::Call::kDirect);
  CHECK_EQ(target, at(kFunction));
  target = 0;
  CHECK(arch::call_before(at(kCaller + 28), target, read) == arch::Call::kThroughStub);
  CHECK_EQ(target, at(kFunction));
  CHECK(arch::call_before(at(kCaller + 32), target, read) == arch::Call::kElsewhere);
  CHECK(arch::call_before(at(kCaller + 36), target, read) == arch::Call::kNone);
  CHECK(arch::call_before(at(kCaller + 26), target, read) == arch::Call::kNone);
  CHECK(arch::call_before(at(0), target, read) == arch::Call::kNone);
}

CASE(a_system_call_is_known_before_and_behind_it) {
  fill_image();
  for (std::uint64_t offset : {8, 12}) {
    arch::SystemCall call = arch::system_call_at(at(kFunction + offset), read);
    CHECK(call.made && call.known);
    CHECK_EQ(call.number, kMunmap);
  }
  CHECK(!arch::system_call_at(at(kFunction + 4), read).made);
  CHECK(!arch::system_call_at(at(kCaller), read).made);
}

// The image of a 32-bit program lies in the first 4 GiB: here, addresses are offsets.
bool read_image(std::uint64_t offset, void* buffer, std::size_t length) {
  if (offset + length > sizeof image) return false;
  std::memcpy(buffer, image + offset, length);
  return true;
}

void fill_short_image() {
  constexpr std::uint32_t kThumbFunction = kFunction | 1;
  std::memset(image, 0, sizeof image);
  std::memcpy(image + kFunction, kThumbFunctionCode, sizeof kThumbFunctionCode);
  std::memcpy(image + kCaller, kThumbCallerCode, sizeof kThumbCallerCode);
  std::memcpy(image + kStub, kArmStubCode, sizeof kArmStubCode);
  std::memcpy(image + kSlot, &kThumbFunction, sizeof kThumbFunction);
}

arch::Call short_call(std::uint64_t address, std::uint64_t& target) {
  return arch::call_before<4>(address, target, read_image);
}

CASE(calls_of_32_bit_programs_tell_where_they_lead) {
  fill_short_image();
  std::uint64_t target = 0;
  CHECK(short_call(kCaller + 17, target) == arch::Call::kDirect);
  CHECK_EQ(target, kFunction);
  CHECK(short_call(kCaller + 21, target) == arch::Call::kThroughStub);
  CHECK_EQ(target, kFunction);
  CHECK(short_call(kCaller + 23, target) == arch::Call::kElsewhere);
  CHECK(short_call(kCaller + 25, target) == arch::Call::kNone);
  CHECK(short_call(kCaller + 16, target) == arch::Call::kNone);  // no return address of Thumb
  target = 0;
  CHECK(short_call(kStub + 16, target) == arch::Call::kThroughStub);
  CHECK_EQ(target, kFunction);
  CHECK(short_call(kStub + 20, target) == arch::Call::kNone);
}

CASE(system_calls_of_32_bit_programs_are_known) {
  fill_short_image();
  for (std::uint64_t offset : {4, 6}) {
    arch::SystemCall call = arch::short_system_call_at(kFunction + offset, read_image);
    CHECK(call.made && call.known);
    CHECK_EQ(call.number, kShortMunmap);
  }
  arch::SystemCall call = arch::short_system_call_at(kStub + 24, read_image);
  CHECK(call.made && call.known);
  CHECK_EQ(call.number, kShortMprotect);
  CHECK(arch::is_short_memory_call(kShortMunmap) && arch::is_short_memory_call(kShortMprotect));
  CHECK(!arch::short_system_call_at(kFunction + 2, read_image).made);

  constexpr std::uint16_t kMoveFromIp = 0x4667;  // mov r7, ip
  std::memcpy(image + kFunction + 2, &kMoveFromIp, sizeof kMoveFromIp);
  CHECK(!arch::short_system_call_at(kFunction + 4, read_image).made);
}

CASE(addresses_in_32_bit_programs_are_distances_from_the_code) {
  fill_short_image();
  CHECK_EQ(arch::short_named_address(at(kCaller)), arch::low_half(at(kNamed)));
  CHECK_EQ(arch::short_named_address(at(kCaller + 6)), arch::low_half(at(kUsed)));
  CHECK_EQ(arch::short_named_address(at(kCaller + 2)), 0u);
}

}  // namespace
}  // namespace reachscan::tests
