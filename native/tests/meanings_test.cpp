// Which places in memory get a closer look as unaligned pointers, as distances, or as words of the
// table of an array in pieces.
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "hosted.hpp"
#include "memory.hpp"
#include "sweeper/mark/words.hpp"
#include "sweeper/meanings/doubling.hpp"
#include "sweeper/meanings/packed.hpp"
#include "sweeper/meanings/python_int.hpp"
#include "sweeper/meanings/relative.hpp"

namespace reachscan::tests {
namespace {

using sweeper::PackedFilter;
using sweeper::RelativeFields;
using sweeper::RelativeFilter;

constexpr heaps::Hulls kHulls{{0x5555'0000'0000, 0x5556'0000'0000},
                              {0x7ff0'0000'0000, 0x7fff'0000'0000}};
constexpr heaps::Hulls kMixed{{0x1000'0000, 0x2000'0000}, kHulls.high};

// The filter may pass more than necessary, but only at unaligned places.
CASE(pointers_at_any_byte_pass) {
  std::mt19937_64 random(1);
  for (bool wide : {false, arch::has_lanes()}) {
    Host host;
    host.control.wide_words = wide;
    for (const heaps::Hulls& hulls : {kHulls, kMixed, heaps::Hulls{kHulls.low, kHulls.low}}) {
      const PackedFilter filter(hulls);
      for (unsigned round = 0; round < 5000; ++round) {
        unsigned char bytes[8 * 64 + 8];
        for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
        const heaps::Range& hull = random() % 2 == 0 ? hulls.low : hulls.high;
        uint64_t pointer = hull.start + random() % (hull.end - hull.start);
        unsigned lines = 1 + random() % 8, place = random() % (64 * lines);
        std::memcpy(bytes + place, &pointer, 8);
        uint64_t passing[8];
        filter.passing(reinterpret_cast<uint64_t>(bytes), lines, passing);
        CHECK_EQ(passing[place / 64] >> place % 64 & 1, place % 8 != 0 ? 1u : 0u);
        for (unsigned i = 0; i < lines; ++i) CHECK_EQ(passing[i] & 0x0101'0101'0101'0101, 0u);
      }
    }
  }
}

CASE(unaligned_pointers_are_visited_wherever_they_are) {
  std::mt19937_64 random(1);
  Host host;
  Memory memory;
  memory.map(kWorld, 3 * heaps::kPage);
  for (bool wide : {false, arch::has_lanes()}) {
    host.control.wide_words = wide;
    const PackedFilter filter(kHulls);
    for (unsigned round = 0; round < 5000; ++round) {
      uint64_t start = kWorld + 8 * (random() % 1000), end = start + 8 + random() % 4000;
      uint64_t place = start + random() % (end - start - 7),
               pointer = kHulls.low.start + (place - kWorld);
      memory.put(place, pointer);
      std::vector<uint64_t> seen;
      sweeper::each_unaligned_that(memory.space(), start, end, filter,
                                   [&](uint64_t at, uint64_t value) {
                                     if (value == pointer) seen.push_back(at);
                                   });
      CHECK(seen == std::vector<uint64_t>(place % 8 != 0, place));
      memory.put(place, 0);
    }
  }
}

// Parts of small numbers are everywhere.
CASE(addresses_without_the_highest_byte_of_others_do_not_pass) {
  const heaps::Range across{0x00f0'0000, 0x0120'0000};
  for (bool wide : {false, arch::has_lanes()}) {
    Host host;
    host.control.wide_words = wide;
    const PackedFilter filter({across, across});
    for (uint64_t pointer : {0x00ff'fff0, 0x0100'0000}) {
      uint64_t words[9] = {0, pointer << 16};
      uint64_t passing;
      filter.passing(reinterpret_cast<uint64_t>(words), 1, &passing);
      CHECK_EQ(passing, pointer < 0x0100'0000 ? 0u : 1ull << 10);
    }
  }
}

CASE(many_distances_at_once_are_judged_as_one_by_one) {
  std::mt19937_64 random(1);
  Host host;
  uint64_t words[64];
  auto at = reinterpret_cast<uint64_t>(words);
  const heaps::Range near{at - 4096, at + 4096}, far{at + (1 << 20), at + (2 << 20)};
  for (const heaps::Hulls& hulls : {heaps::Hulls{near, far}, heaps::Hulls{near, near}}) {
    host.control.wide_words = 0;
    const RelativeFilter narrow(hulls);
    host.control.wide_words = arch::has_lanes();
    const RelativeFilter wide(hulls);
    for (unsigned round = 0; round < 5000; ++round) {
      for (uint64_t& word : words) {
        word = random() % (1 << 18) - (1 << 17);
        if (random() % 2 == 0) word &= ~7ull;
        if (random() % 4 == 0) word = random() % 3 * 8;
      }
      unsigned lines = 1 + random() % 8;
      uint64_t expected = 0;
      for (unsigned i = 0; i < 8 * lines; ++i)
        expected |= uint64_t{narrow.passes_at(at + 8 * i)} << i;
      CHECK_EQ(narrow.passing(at, lines), expected);
      CHECK_EQ(wide.passing(at, lines), expected);
    }
  }
}

// What is next to the lines is not known.
CASE(words_of_tables_pass_in_pairs_or_at_the_edge) {
  Host host;
  const uint64_t piece = kHulls.low.start + 0x1230;
  for (bool wide : {false, arch::has_lanes()}) {
    host.control.wide_words = wide;
    const sweeper::TableFilter filter(kHulls);
    auto passing = [&](std::initializer_list<unsigned> places) {
      uint64_t words[16] = {};
      for (unsigned place : places) words[place] = piece;
      return filter.passing(reinterpret_cast<uint64_t>(words), 2);
    };
    CHECK_EQ(passing({3, 5, 9, 13}), 0u);
    CHECK_EQ(passing({3, 4, 9}), 0b11000u);
    CHECK_EQ(passing({7, 8, 10, 11, 12}), 0b1'1101'1000'0000u);
    CHECK_EQ(passing({0, 2, 15}), 1u | 1u << 15);
  }
}

CASE(what_the_allocator_leaves_is_no_distance) {
  uint64_t words[4] = {0, 0, 32, 0};
  auto start = reinterpret_cast<uint64_t>(words) & ~15ull;
  unsigned visits = 0;
  auto count = [&](sweeper::Field, uint64_t) { ++visits; };
  heaps::Range block{start, start + 24};
  *reinterpret_cast<uint64_t*>(start + 16) = 32;  // the size of the chunk, in its last word
  sweeper::each_target(block, start + 16, count);
  CHECK_EQ(visits, 0u);
  *reinterpret_cast<uint64_t*>(start + 16) = 48;
  sweeper::each_target(block, start + 16, count);
  CHECK_EQ(visits, 2u);
}

// An integer of CPython: its type's type is its own type, and it is a type of integers.
CASE(what_only_looks_like_an_integer_of_python_is_none) {
  Host host;
  Memory memory;
  uint64_t meta = memory.map(kWorld, heaps::kPage), type = meta + 0x200, object = meta + 0x600;
  constexpr uint64_t kFlagsOfInt = 1 << 24;
  memory.put(meta + 8, meta);
  memory.put(type + 8, meta);
  memory.put(type + 40, sizeof(uint32_t));
  memory.put(type + 168, kFlagsOfInt);
  memory.put(object, 1);
  memory.put(object + 8, type);
  memory.put(object + 16, 2);
  memory.put(object + 24, 5ull << 32 | 7);
  auto value = [&] { return sweeper::python_int_at(memory.space(), object + 24); };
  CHECK_EQ(value(), 5ull << 30 | 7);
  memory.put(meta + 8, type);
  CHECK_EQ(value(), 0u);
  memory.put(meta + 8, meta);
  memory.put(type + 168, 0);
  CHECK_EQ(value(), 0u);
  memory.put(type + 168, kFlagsOfInt);
  memory.put(object, 0);
  CHECK_EQ(value(), 0u);
}

// Counts values that do not share a bit: first those that lead to blocks, then the others.
void count_values(RelativeFields::Row* row, unsigned hits, unsigned misses) {
  unsigned done = 0;
  for (uint64_t value = 8; done < hits + misses; value += 8)
    if (!row->all.has(value)) row->all.count(value, done++ < hits);
}

CASE(a_field_counts_if_most_of_it_leads_to_blocks) {
  Host host;
  RelativeFields fields;
  CHECK(fields.empty());
  auto count = [&](sweeper::Field field, unsigned hits, unsigned misses) {
    fields.add(field);
    count_values(fields.find(field), hits, misses);
    return fields.standing(field);
  };
  CHECK(count(1 << 6, 1, 0) == RelativeFields::Standing::kPossible);
  CHECK(count(2 << 6, 1, 2) == RelativeFields::Standing::kNone);
  CHECK(count(3 << 6, 7, 0) == RelativeFields::Standing::kPossible);
  CHECK(count(4 << 6, 9, 3) == RelativeFields::Standing::kCertain);
  CHECK(count(5 << 6, 9, 4) == RelativeFields::Standing::kPossible);
  CHECK(!fields.empty());
  for (unsigned i = 0; i < 100; ++i) {
    fields.find(4 << 6)->all.count(8, false);
    fields.find(5 << 6)->all.count(8, true);
  }
  CHECK(fields.standing(4 << 6) == RelativeFields::Standing::kCertain);
  CHECK(fields.standing(5 << 6) == RelativeFields::Standing::kPossible);
  CHECK(fields.find(6 << 6) == nullptr);
  CHECK(fields.standing(6 << 6) == RelativeFields::Standing::kNone);
}

CASE(few_distances_of_each_length_are_many) {
  Host host;
  RelativeFields fields;
  auto count = [&](sweeper::Field field, uint64_t length, unsigned hits, unsigned misses) {
    count_values(fields.find(sweeper::of_length(field, length)), hits, misses);
  };
  constexpr sweeper::Field kAll = 1 << 6, kFew = 2 << 6, kSmallNumbers = 3 << 6, kMixed = 4 << 6;
  for (sweeper::Field field : {kAll, kFew, kSmallNumbers}) {
    fields.add(field);
    for (uint64_t length : {0, 1, 2}) count(field, length, field == kFew ? 2 : 3, 0);
  }
  count(kSmallNumbers, 0, 0, 9);
  fields.add(kMixed);
  count(kMixed, 0, 2, 3);
  for (uint64_t length : {1, 2}) count(kMixed, length, 12, 0);
  CHECK(fields.standing(kMixed) == RelativeFields::Standing::kPossible);
  CHECK(fields.standing(sweeper::of_length(kMixed, 1)) == RelativeFields::Standing::kCertain);
  CHECK(fields.standing(kAll) == RelativeFields::Standing::kCertain);
  CHECK(fields.standing(kFew) == RelativeFields::Standing::kPossible);
  CHECK(fields.standing(kSmallNumbers) == RelativeFields::Standing::kNone);
  CHECK(fields.standing(sweeper::of_length(kSmallNumbers, 1)) ==
        RelativeFields::Standing::kPossible);
}

// Other users of blocks of that size have numbers in this field.
CASE(what_leads_to_lost_blocks_counts_by_itself) {
  Host host;
  RelativeFields fields;
  auto standing = [&](sweeper::Field field, unsigned hits, unsigned misses, uint64_t size) {
    fields.add(field);
    RelativeFields::Row* row = fields.find(field);
    for (uint64_t value = 1; row->all.words < 30; ++value) row->all.count(value, false);
    unsigned done = 0;
    for (uint64_t value = 8; done < hits + misses; value += 8)
      if (!row->lost.has(value)) row->count_lost(value, done++ < hits, size);
    for (unsigned i = 0; i < 100; ++i) row->count_lost(8, true, size);
    return fields.standing(field);
  };
  CHECK(standing(1 << 6, 5, 0, 776) == RelativeFields::Standing::kCertain);
  CHECK(standing(2 << 6, 4, 0, 776) == RelativeFields::Standing::kNone);
  CHECK(standing(3 << 6, 5, 2, 776) == RelativeFields::Standing::kNone);
  CHECK(standing(6 << 6, 3, 0, 1 << 20) == RelativeFields::Standing::kNone);
  CHECK(standing(7 << 6, 4, 0, 1 << 20) == RelativeFields::Standing::kCertain);
  // In blocks as small as these, any number leads to the start one time in two.
  CHECK(standing(4 << 6, 23, 0, 24) == RelativeFields::Standing::kNone);
  CHECK(standing(5 << 6, 24, 0, 24) == RelativeFields::Standing::kCertain);
}

CASE(misses_weigh_more_if_only_some_were_counted) {
  for (uint64_t weight : {1, 4}) {
    for (unsigned hits = 6; hits < 20; ++hits) {
      context = std::to_string(hits) + " hits, weight " + std::to_string(weight);
      Host host;
      RelativeFields fields;
      constexpr sweeper::Field kField = 1 << 6;
      fields.add(kField);
      RelativeFields::Row* row = fields.find(kField);
      for (uint64_t value = 1; row->all.words < 30; ++value) row->all.count(value, false);
      row->count_lost(1, false, 776);
      for (uint64_t value = 8; row->lost.hits < hits; value += 8)
        if (!row->lost.has(value)) row->count_lost(value, true, 776);
      fields.weigh_misses(weight);
      CHECK((fields.standing(kField) == RelativeFields::Standing::kCertain) ==
            (hits >= 3 * weight));
    }
  }
}

CASE(larger_blocks_are_like_those_that_are_a_granule_smaller) {
  Host host;
  RelativeFields fields;
  auto count = [&](sweeper::Field field, unsigned hits, unsigned misses) {
    fields.add(field);
    RelativeFields::Row* row = fields.find(field);
    unsigned done = 0;
    for (uint64_t value = 8; done < hits + misses; value += 8)
      if (!row->all.has(value)) row->all.count(value, done++ < hits);
    return fields.standing(field);
  };
  uint64_t words[16] = {};
  auto start = reinterpret_cast<uint64_t>(words) & ~15ull;
  auto field_in = [&](uint64_t size, uint64_t offset) {
    return sweeper::field_of({start, start + size}, offset, false, 2048);
  };
  CHECK(count(field_in(24, 8), 9, 0) == RelativeFields::Standing::kCertain);
  CHECK(count(field_in(40, 8), 1, 0) == RelativeFields::Standing::kCertain);
  CHECK(count(field_in(56, 8), 1, 0) == RelativeFields::Standing::kPossible);
  CHECK(count(field_in(40, 16), 1, 0) == RelativeFields::Standing::kPossible);
  CHECK(count(field_in(72, 8), 9, 0) == RelativeFields::Standing::kCertain);
  CHECK(count(field_in(88, 8), 1, 4) == RelativeFields::Standing::kPossible);
}

CASE(a_single_character_is_a_number) {
  CHECK(!sweeper::is_short_text('p'));
  CHECK(sweeper::is_short_text('p' | 'x' << 8));
  CHECK(!sweeper::is_short_text('p' | 1 << 8));
}

CASE(blocks_at_the_start_of_a_page_begin_like_others) {
  alignas(heaps::kPage) static uint64_t words[3 * heaps::kPage / 8];
  auto start = reinterpret_cast<uint64_t>(words);
  words[0] = words[2] = 7ull << 32 | 7;
  auto field_at = [](uint64_t block, uint64_t offset) {
    return sweeper::field_of({block, block + 2 * heaps::kPage}, offset, false, 2048);
  };
  CHECK_EQ(field_at(start, 8), field_at(start + 16, 8));
  // A field in another page may be the only one of its page.
  CHECK(field_at(start, heaps::kPage) != field_at(start + 16, heaps::kPage));
}

}  // namespace
}  // namespace reachscan::tests
