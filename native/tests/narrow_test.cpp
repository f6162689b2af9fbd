// Which words get a closer look as 32-bit pointers, and when such a number is certainly one.
#include "sweeper/meanings/narrow.hpp"

#include <random>

#include "check.hpp"
#include "hosted.hpp"

namespace reachscan::tests {
namespace {

using sweeper::Company;
using sweeper::company_of;
using sweeper::NarrowFilter;

constexpr heaps::Range kShort{0x1000'0000, 0x2000'0000}, kLong{0x7ff0'0000'0000, 0x7fff'0000'0000};

CASE(halves_of_words_pass_however_many_are_tested_at_once) {
  std::mt19937_64 random(1);
  Host host;
  host.control.wide_words = 0;
  const NarrowFilter one_by_one({kShort, kLong});
  host.control.wide_words = arch::has_lanes();
  const NarrowFilter wide({kShort, kLong});
  CHECK(!wide.is_empty());
  uint64_t words[64];
  auto at = reinterpret_cast<uint64_t>(words);
  for (unsigned round = 0; round < 5000; ++round) {
    for (uint64_t& word : words) {
      uint64_t pointer = kShort.start + random() % (kShort.end - kShort.start);
      uint64_t other = random() % 2 == 0 ? random() >> 32 : 0;
      const uint64_t forms[] = {
          pointer, pointer << 32,      pointer | other << 32, pointer << 32 | other,
          other,   kLong.start + other};
      word = forms[random() % 6];
    }
    unsigned lines = 1 + random() % 8;
    uint64_t expected = 0;
    for (unsigned i = 0; i < 8 * lines; ++i) {
      expected |= uint64_t{one_by_one.passes_at(at + 8 * i)} << i;
      if (words[i] >= kShort.start && words[i] < kShort.end)
        CHECK(!one_by_one.passes_at(at + 8 * i));
    }
    CHECK_EQ(one_by_one.passing(at, lines), expected);
    CHECK_EQ(wide.passing(at, lines), expected);
  }
}

CASE(where_addresses_are_long_nothing_passes) {
  Host host;
  CHECK(NarrowFilter({kLong, kLong}).is_empty());
  CHECK(!NarrowFilter({kShort, kShort}).is_empty());
}

CASE(a_number_among_pointers_is_one) {
  alignas(16) uint32_t numbers[64] = {};
  auto start = reinterpret_cast<uint64_t>(numbers);
  const heaps::Range around{start, start + sizeof numbers};
  auto is_pointer = [](uint64_t value) { return value % 16 == 0; };
  auto is_address = [](uint64_t value) { return kLong.contains(value); };
  auto company = [&] { return company_of(around, start + 4, is_pointer, is_address); };
  numbers[1] = 16;
  CHECK(company() == Company::kMixed);  // alone
  numbers[9] = 32;
  CHECK(company() == Company::kPointers);
  numbers[11] = numbers[13] = 7;
  CHECK(company() == Company::kPointers);
  numbers[15] = 7;
  CHECK(company() == Company::kMixed);  // most are not
  numbers[2] = 64;                      // a pointer of 64 bits, which says nothing
  CHECK(company() == Company::kMixed);
  numbers[14] = 7, numbers[15] = 0x7ff1;  // a long one
  CHECK(company() == Company::kPointers);
  for (unsigned i = 0; i < 12; ++i) numbers[17 + 2 * i] = 7;
  CHECK(company() == Company::kMixed);
  numbers[63] = 7;
  CHECK(company() == Company::kNumbers);
}

}  // namespace
}  // namespace reachscan::tests
