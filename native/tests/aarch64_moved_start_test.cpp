// The moved start of an aarch64 function still does what it did before, wherever the tests run.
#include <string>
#include <vector>

#include "arch/aarch64/moved_start.hpp"
#include "check.hpp"

namespace reachscan::tests {
namespace {

using Code = std::vector<std::uint32_t>;

constexpr std::uint64_t kFrom = 0xaaaa'0040'1000, kTo = kFrom - (64 << 20);
constexpr std::uint32_t kPush = 0xa9bf7bfd;  // stp x29, x30, [sp, #-16]!
constexpr std::uint32_t kReturn = 0xd65f03c0;
constexpr std::uint32_t kPad = 0xd503245f;   // bti c
constexpr std::uint32_t kSign = 0xd503233f;  // paciasp

std::optional<Code> moved(const Code& code) {
  auto bytes = arch::MovedStart::make(reinterpret_cast<const unsigned char*>(code.data()),
                                      code.size() * sizeof code[0], kFrom, kTo);
  if (!bytes) return std::nullopt;
  Code words(bytes->size() / sizeof code[0]);
  std::memcpy(words.data(), bytes->data(), bytes->size());
  return words;
}

// Returns the target of the jump at that place.
std::uint64_t target(const Code& code, std::size_t at) {
  return arch::jump_target(code[at], kTo + at * 4);
}

std::uint64_t word_of(std::uint32_t first, std::uint32_t second) {
  return std::uint64_t{second} << 32 | first;
}

CASE(one_instruction_makes_room_for_a_jump) {
  auto code = moved({kPush, kReturn});
  CHECK(code.has_value());
  CHECK_EQ(code->size(), 2u);
  CHECK_EQ((*code)[0], kPush);
  CHECK_EQ(target(*code, 1), kFrom + 4);
}

CASE(a_landing_pad_stays_in_front_of_the_jump) {
  for (std::uint32_t first : {kPad, kSign}) {
    auto code = moved({first, kPush, kReturn});
    CHECK(code.has_value());
    CHECK_EQ(code->size(), 3u);
    CHECK_EQ((*code)[0], first);
    CHECK_EQ((*code)[1], kPush);
    CHECK_EQ(target(*code, 2), kFrom + 8);
    std::uint64_t word = word_of(first, kPush), hooked = arch::with_jump(word, kFrom, kTo);
    CHECK_EQ(arch::start_bytes(word), 8u);
    CHECK_EQ(static_cast<std::uint32_t>(hooked), kPad);
    CHECK_EQ(arch::jump_target(hooked, kFrom), kTo);
  }
}

CASE(a_jump_leaves_the_next_instruction_alone) {
  std::uint64_t word = word_of(kPush, kReturn), hooked = arch::with_jump(word, kFrom, kTo);
  CHECK_EQ(arch::start_bytes(word), 4u);
  CHECK_EQ(hooked >> 32, kReturn);
  CHECK_EQ(arch::jump_target(hooked, kFrom), kTo);
  CHECK_EQ(arch::jump_target(word, kFrom), 0u);
}

CASE(addresses_become_constants) {
  // adrp x3, four pages on; adr x3, one byte before.
  const std::pair<std::uint32_t, std::uint64_t> tried[] = {
      {0x90000023, kFrom + 0x4000},
      {0x70ffffe3, kFrom - 1},
  };
  for (auto [instruction, address] : tried) {
    auto code = moved({instruction, kReturn});
    CHECK(code.has_value());
    CHECK_EQ(code->size(), 5u);
    std::uint64_t value = 0;
    for (unsigned part = 0; part < 4; ++part) {
      CHECK_EQ((*code)[part] & 31, 3u);
      CHECK_EQ((*code)[part] & 0xffe00000, (part == 0 ? 0xd2800000 : 0xf2800000) | part << 21);
      value |= std::uint64_t{(*code)[part] >> 5 & 0xffff} << 16 * part;
    }
    CHECK_EQ(value, address);
    CHECK_EQ(target(*code, 4), kFrom + 4);
  }
}

CASE(branches_reach_further) {
  // cbz x0, three on; b.eq, three on; tbnz x0, #3, three on.
  for (std::uint32_t branch : {0xb4000060u, 0x54000060u, 0x37180060u}) {
    auto code = moved({branch, kPush, kReturn, kReturn});
    CHECK(code.has_value());
    CHECK_EQ(code->size(), 4u);
    CHECK_EQ((*code)[0], branch - 0x20);  // two on, to the jump
    CHECK_EQ(target(*code, 1), kTo + 12);
    CHECK_EQ(target(*code, 2), kFrom + 12);
    CHECK_EQ(target(*code, 3), kFrom + 4);
  }
}

CASE(a_function_may_be_one_jump) {
  auto code = moved({0x14000400});  // b, 0x1000 on
  CHECK(code.has_value());
  CHECK_EQ(code->size(), 1u);
  CHECK_EQ(target(*code, 0), kFrom + 0x1000);
}

CASE(what_cannot_be_moved_is_refused) {
  const Code refused[] = {
      {},
      {kPad},                        // too short
      {0x94000010, kReturn},         // bl would return into it
      {0xd63f0060, kReturn},         // blr
      {0x58000040, kReturn},         // ldr x0, two on
      {kPush, kPush, 0x17fffffe},    // b, two back: to the start
      {kPad, kPush, 0xb5ffffe0},     // cbnz x0, one back: into the start
      {0x00000000, kReturn},         // udf
      {kPush, 0x74000000, kReturn},  // a branch of later processors
      {0xdac1a3fe, kReturn},         // paciasppc signs by its own address
      {0x14000000 | 0x1ffffff},      // b, out of reach from there
  };
  for (const Code& code : refused) CHECK(!moved(code).has_value());
}

}  // namespace
}  // namespace reachscan::tests
