// What is sent in place of words when contents were not requested.
#include "sweeper/blocks/masked.hpp"

#include <cstring>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

using sweeper::kSomeData, sweeper::kSomeNumber, sweeper::kSomeText;

uint64_t letters(const char (&text)[9]) {
  uint64_t word = 0;
  std::memcpy(&word, text, sizeof word);
  return word;
}

CASE(addresses_and_zero_stay_and_all_else_becomes_another_of_its_class) {
  Host host;
  Graph graph(1, 4);
  const heaps::Space space = graph.memory.space();
  auto masked = [&](uint64_t word) { return sweeper::masked(space, graph.start(0), word); };
  for (uint64_t kept : {uint64_t{0}, graph.start(0), graph.start(0) + 1})
    CHECK_EQ(masked(kept), kept);
  for (uint64_t number : {1l, -1l, 65535l, -65536l})
    CHECK_EQ(masked(static_cast<uint64_t>(number)), kSomeNumber);
  for (uint64_t text : {letters("password"), letters("tab\t\n\0\0\0"), letters("abc\0\0\0\0\0")})
    CHECK_EQ(masked(text), kSomeText);
  for (uint64_t data : {uint64_t{65536}, ~uint64_t{65536}, letters("ab\0c\0\0\0\0"),
                        letters("\0bcdefgh"), letters("caf\xc3\xa9\0\0\0")})
    CHECK_EQ(masked(data), kSomeData);
  for (uint64_t word : {kSomeNumber, kSomeText, kSomeData}) CHECK_EQ(masked(word), word);
}

CASE(letters_that_a_disguised_pointer_may_consist_of_are_no_text) {
  Host host;
  Graph graph(1, 4);
  const heaps::Space space = graph.memory.space();
  constexpr uint64_t kPlace = 0x5555'6000'0010;  // "U" is 0x55
  CHECK_EQ(sweeper::masked(space, kPlace, letters("!!!!UU\0\0")), kSomeData);
  CHECK_EQ(sweeper::masked(space, kPlace, letters("!!!!UV\0\0")), kSomeText);
}

CASE(a_leading_word_is_masked_only_if_contents_are_withheld) {
  Host host;
  Graph graph(1, 4);
  graph.memory.put(graph.start(0), letters("password"));
  CHECK_EQ(sweeper::lead_word(graph.memory.space(), graph.start(0)), letters("password"));
  host.control.withheld = 1;
  CHECK_EQ(sweeper::lead_word(graph.memory.space(), graph.start(0)), kSomeText);
}

}  // namespace
}  // namespace reachscan::tests
