// Which words get a closer look as disguised pointers.
#include "sweeper/meanings/disguise.hpp"

#include <random>

#include "check.hpp"
#include "hosted.hpp"

namespace reachscan::tests {
namespace {

using sweeper::DisguiseFilter;

constexpr heaps::Hulls kHulls{{0x5555'0000'0000, 0x5556'0000'0000},
                              {0x7ff0'0000'0000, 0x7fff'0000'0000}};
constexpr heaps::Hulls kLow{{0x3000'0000, 0x7000'0000}, {0x3000'0000, 0x7000'0000}};
constexpr uint64_t kGuard = 0x8b5c'21f0'93d7'4e66;

uint64_t mangled(uint64_t pointer) {
  uint64_t hidden = pointer ^ kGuard;
  return hidden << 17 | hidden >> 47;
}

CASE(pointers_in_disguise_pass_and_plain_words_do_not) {
  Host host;
  DisguiseFilter filter(kHulls, kGuard);
  for (const heaps::Range& hull : {kHulls.low, kHulls.high}) {
    for (uint64_t pointer : {hull.start, hull.start + 0x1230, hull.end - 16}) {
      CHECK(filter.passes(pointer | 1ull << 63));
      CHECK(filter.passes(pointer | 1ull << 48));
      CHECK(filter.passes(mangled(pointer)));
      CHECK(filter.passes(pointer + 8));  // where a block may end
      CHECK(filter.passes(pointer << 16 | 0x1234));
      CHECK(filter.passes(pointer >> 3 | 3ull << 62));
    }
    CHECK(filter.passes(hull.end));
    CHECK(filter.passes(hull.start + heaps::kPage));
    CHECK(!filter.passes(hull.start + 0x1230));
    CHECK(!filter.passes(hull.end + 8));
    CHECK(!filter.passes(hull.end + heaps::kPage));
    CHECK(!filter.passes(mangled(hull.end)));
    CHECK(!filter.passes(hull.end << 16));
    CHECK(!filter.passes(hull.start >> 3 | 7ull << 61));
  }
  for (uint64_t value : {0ull, 1ull, 8ull, 4096ull, ~0ull, 1ull << 62})
    CHECK(!filter.passes(value));
}

// Two digits of 30 bits. A single digit is an ordinary word.
CASE(low_addresses_in_digits_pass) {
  Host host;
  DisguiseFilter filter(kLow, kGuard);
  CHECK(filter.passes(1ull << 32));
  CHECK(filter.passes(1ull << 32 | 0x1230));
  CHECK(filter.passes(1ull << 32 | 0x2fff'fff0));
  CHECK(!filter.passes(1ull << 32 | 0x3000'0000));
  CHECK(!filter.passes(2ull << 32));
  CHECK(!filter.passes(0x3000'1230));
}

// Words around every limit, and random ones. Of many words at once, more may pass than necessary.
CASE(words_that_pass_alone_pass_among_others) {
  std::mt19937_64 random(1);
  Host host;
  for (const heaps::Hulls& hulls : {kHulls, heaps::Hulls{kHulls.high, kHulls.high}, kLow}) {
    host.control.wide_words = 0;
    const DisguiseFilter narrow(hulls, kGuard);
    host.control.wide_words = arch::has_lanes();
    const DisguiseFilter wide(hulls, kGuard);
    for (unsigned round = 0; round < 5000; ++round) {
      uint64_t words[64];
      for (uint64_t& word : words) {
        const heaps::Range& hull = random() % 2 == 0 ? hulls.low : hulls.high;
        uint64_t base[] = {hull.start, hull.end, hull.start + random() % (hull.end - hull.start),
                           random()};
        word = base[random() % 4] + random() % 33 - 16;
        if (random() % 4 == 0) word = mangled(word);
        if (random() % 4 == 0) word |= random() << 48;
        if (random() % 8 == 0) word = word << 16 | random() % 0x10000;
        if (random() % 8 == 0) word = word >> 3 | 3ull << 62;
        if (random() % 4 == 0) word = word >> 30 << 32 | (word & 0x3fff'ffff);
      }
      auto at = reinterpret_cast<uint64_t>(words);
      unsigned lines = 1 + random() % 8;
      uint64_t expected = 0;
      for (unsigned i = 0; i < 8 * lines; ++i) expected |= uint64_t{narrow.passes(words[i])} << i;
      CHECK_EQ(narrow.passing(at, lines), expected);
      CHECK_EQ(wide.passing(at, lines) & expected, expected);
    }
  }
}

CASE(of_many_words_ordinary_ones_do_not_pass) {
  Host host;
  host.control.wide_words = arch::has_lanes();
  for (const heaps::Hulls& hulls : {kHulls, heaps::Hulls{kHulls.high, kHulls.high}, kLow}) {
    const DisguiseFilter filter(hulls, kGuard);
    const uint64_t words[8] = {0,     8,       4096,       hulls.low.start + 0x1230,
                               ~0ull, 1 << 20, 1ull << 62, hulls.high.end - 16};
    CHECK_EQ(filter.passing(reinterpret_cast<uint64_t>(words), 1), 0u);
  }
}

}  // namespace
}  // namespace reachscan::tests
