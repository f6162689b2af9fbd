// Where a recorder is placed that functions of a program jump to.
#include "helper/recording/free_place.hpp"

#include "check.hpp"

namespace reachscan::tests {
namespace {

using helper::free_place;
using helper::MapEntry;

constexpr std::uint64_t kPage = arch::kPage, kBytes = 4 * kPage;
constexpr std::uint64_t kProgram = 0x400000, kFirst = kProgram + 0x1230, kLast = kProgram + 0x2000;

MapEntry mapping(std::uint64_t start, std::uint64_t end) {
  return {start, end, 0, 0, "", 0, "", helper::Backing::kNothing};
}

const MapEntry kCode = mapping(kProgram, kProgram + 0x10000);
const MapEntry kStack = mapping(0x7fff'0000'0000, 0x7fff'0001'0000);

CASE(below_the_program_if_there_is_room) {
  CHECK_EQ(free_place({kCode, kStack}, kFirst, kLast, kBytes), kProgram - kBytes - kPage);
}

CASE(below_what_lies_there_already) {
  MapEntry other = mapping(kProgram - kBytes, kProgram);
  CHECK_EQ(free_place({other, kCode, kStack}, kFirst, kLast, kBytes), other.start - kBytes - kPage);
}

CASE(a_page_on_either_side_stays_free) {
  for (std::uint64_t room : {kBytes + kPage, kBytes + 2 * kPage}) {
    MapEntry other = mapping(kProgram - 3 * kBytes, kProgram - room);
    std::uint64_t above = room == kBytes + kPage ? other.start : kProgram;
    CHECK_EQ(free_place({other, kCode, kStack}, kFirst, kLast, kBytes), above - kBytes - kPage);
  }
}

CASE(else_as_far_above_as_a_jump_reaches) {
  MapEntry below = mapping(16 * kPage, kProgram), heap = mapping(0x600000, 0x700000);
  std::uint64_t place = free_place({below, kCode, heap, kStack}, kFirst, kLast, kBytes);
  CHECK_EQ(place % kPage, 0u);
  CHECK(place > heap.end && place + kBytes - kFirst < arch::kJumpReach);
  CHECK(arch::kJumpReach - (place - kFirst) < kBytes + 3 * kPage);
}

CASE(nowhere_if_all_is_taken) {
  MapEntry all = mapping(16 * kPage, kProgram + arch::kJumpReach);
  CHECK_EQ(free_place({all, kStack}, kFirst, kLast, kBytes), 0u);
}

CASE(not_where_a_jump_does_not_reach) {
  std::uint64_t high = 0x5555'5555'4000;
  MapEntry below = mapping(high - 2 * arch::kJumpReach, high);
  MapEntry code = mapping(high, high + 0x10000);
  CHECK(free_place({below, code, kStack}, high + 0x10, high + 0x20, kBytes) > high);
}

}  // namespace
}  // namespace reachscan::tests
