// What the first word of a block tells of its kind.
#include "sweeper/blocks/word_kinds.hpp"

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

struct Constants {
  // Each byte of an address here is a printable character.
  static constexpr uint64_t kStart = kWorld | 0x2020202000, kFirst = kStart + 0x40,
                            kSecond = kStart + 0x60;

  Constants() {
    CHECK(sweeper::is_text_word(kFirst) && sweeper::is_text_word(kSecond));
    CHECK_EQ(words.of_first(kFirst), words.of_first(kSecond));  // as yet, nothing is there
    graph.memory.map(kStart, heaps::kPage, wire::kRead, abi::kFileBacked, 1);
  }

  Host host;
  Graph graph{1, 3};
  sweeper::WordKinds words{graph.memory.space(), graph.blocks};
};

CASE(an_address_of_printable_bytes_is_no_text) {
  Constants constants;
  CHECK_EQ(constants.words.of_first(Constants::kFirst), uint64_t{Constants::kFirst});
  CHECK(constants.words.tells_class(Constants::kFirst));
  CHECK(constants.words.of_first(Constants::kFirst) !=
        constants.words.of_first(Constants::kSecond));
}

CASE(names_do_not_distinguish_kinds) {
  Constants constants;
  std::memcpy(reinterpret_cast<char*>(Constants::kFirst), "first", 6);
  std::memcpy(reinterpret_cast<char*>(Constants::kSecond), "the second", 11);
  CHECK_EQ(constants.words.of_first(Constants::kFirst),
           constants.words.of_first(Constants::kSecond));
  CHECK(!constants.words.tells_class(Constants::kFirst));
}

CASE(a_table_of_addresses_is_no_name) {
  Constants constants;
  constants.graph.memory.put(Constants::kFirst, Constants::kSecond);
  CHECK(constants.words.tells_class(Constants::kFirst));
}

CASE(numbers_and_texts_tell_no_class) {
  Constants constants;
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{0x74786574}, constants.graph.start(0)})
    CHECK(!constants.words.tells_class(value));
}

}  // namespace
}  // namespace reachscan::tests
