// How aarch64 machine code is decoded, wherever the tests run.
#include <cstring>

#include "arch/aarch64/code.hpp"
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

}  // namespace
}  // namespace reachscan::tests
