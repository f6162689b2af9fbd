// The moved start of a function still does what it did before.
#include "arch/moved_start.hpp"

#include <string>
#include <vector>

#include "check.hpp"

namespace reachscan::tests {
namespace {

using Code = std::vector<unsigned char>;

constexpr std::uint64_t kFrom = 0x401000, kTo = 0x300040;

std::optional<Code> moved(const Code& code) {
  return arch::MovedStart::make(code.data(), code.size(), kFrom, kTo);
}

// Returns the target of the jump or branch that ends at `end`.
std::uint64_t target(const Code& code, std::size_t end) {
  std::int32_t distance;
  std::memcpy(&distance, &code[end - sizeof distance], sizeof distance);
  return kTo + end + static_cast<std::uint64_t>(std::int64_t{distance});
}

CASE(whole_instructions_are_moved) {
  // push rbp; mov rbp, rdi; push rbx; ret
  auto code = moved({0x55, 0x48, 0x89, 0xfd, 0x53, 0xc3});
  CHECK(code.has_value());
  CHECK(Code(code->begin(), code->begin() + 5) == Code({0x55, 0x48, 0x89, 0xfd, 0x53}));
  CHECK_EQ(code->size(), 10u);
  CHECK_EQ((*code)[5], 0xe9);
  CHECK_EQ(target(*code, 10), kFrom + 5);
}

CASE(data_near_the_function_is_found_from_elsewhere) {
  // cmp byte [rip + 0x1000], 0; ret
  auto code = moved({0x80, 0x3d, 0x00, 0x10, 0x00, 0x00, 0x00, 0xc3});
  CHECK(code.has_value());
  CHECK_EQ((*code)[6], 0u);
  CHECK_EQ(target(*code, 6) + 1, kFrom + 7 + 0x1000);
  CHECK_EQ(target(*code, 12), kFrom + 7);
}

CASE(branches_get_longer) {
  // test rdi, rdi; je +2; nop; nop; ret
  auto code = moved({0x48, 0x85, 0xff, 0x74, 0x02, 0x90, 0x90, 0xc3});
  CHECK(code.has_value());
  CHECK_EQ((*code)[4], 0x84);
  CHECK_EQ(target(*code, 9), kFrom + 7);
  CHECK_EQ(target(*code, 14), kFrom + 5);
}

CASE(a_jump_to_another_function_is_all_there_is) {
  auto code = moved({0xe9, 0x00, 0x10, 0x00, 0x00});
  CHECK(code.has_value());
  CHECK_EQ(code->size(), 5u);
  CHECK_EQ(target(*code, 5), kFrom + 5 + 0x1000);
}

CASE(what_cannot_be_moved_is_refused) {
  const Code refused[] = {
      {0x31, 0xc0, 0xc3},                                                  // too short
      {0xe8, 0x00, 0x00, 0x00, 0x00, 0xc3},                                // a call returns into it
      {0x55, 0x90, 0x90, 0x90, 0x90, 0x48, 0xff, 0xcf, 0x75, 0xf7, 0xc3},  // a loop to its start
      {0xe3, 0x03, 0x90, 0x90, 0x90, 0xc3},        // jrcxz has an 8-bit offset only
      {0x55, 0x90, 0x90, 0x90, 0x90, 0x06, 0xc3},  // no instruction
      {0x48, 0x8b, 0x05, 0x00},                    // ends in the middle of one
  };
  for (const Code& code : refused) CHECK(!moved(code).has_value());
}

}  // namespace
}  // namespace reachscan::tests
