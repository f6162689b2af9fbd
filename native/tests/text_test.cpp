// The kernel's text files, taken apart: lines, words, numbers.
#include "helper/target/text.hpp"

#include "check.hpp"

using namespace reachscan::helper;

CASE(lines_end_with_the_text_at_the_latest) {
  std::string_view text = "one\n\nthree";
  CHECK_EQ(take_line(text), "one");
  CHECK_EQ(take_line(text), "");
  CHECK_EQ(take_line(text), "three");
  CHECK(text.empty());
  CHECK_EQ(take_line(text), "");
}

CASE(words_are_between_blanks_of_any_kind) {
  std::string_view text = "  36 35\t98:0 \n/root\n";
  CHECK_EQ(take_word(text), "36");
  skip_words(text, 1);
  CHECK_EQ(take_word(text), "98:0");
  CHECK_EQ(take_word(text), "/root");
  CHECK_EQ(take_word(text), "");
  CHECK(text.empty());
}

CASE(words_that_are_not_there_can_be_skipped) {
  std::string_view text = "only one";
  skip_words(text, 7);
  CHECK_EQ(take_word(text), "");
}

CASE(a_number_is_known_or_not) {
  CHECK_EQ(number_at_start<std::uint64_t>("2096 kB").value(), 2096u);
  CHECK_EQ(number_at_start<std::uint64_t>("7f0c,", 16).value(), 0x7f0cu);
  CHECK_EQ(number_at_start<long>("-1\n").value(), -1);
  CHECK(!number_at_start<std::uint64_t>("max 100000"));
  CHECK(!number_at_start<std::uint64_t>(""));
  CHECK(!number_at_start<std::uint32_t>("4294967296"));
}

CASE(a_file_is_read_to_the_end_or_so_far_as_asked) {
  std::string text = read_text("/proc/self/maps", SIZE_MAX).value();
  CHECK(text.ends_with("\n"));
  CHECK(short_text("/proc/self/stat").starts_with(std::to_string(getpid()) + " ("));
}

CASE(a_file_that_is_not_there_is_told_from_an_empty_one) {
  CHECK(!read_text("/proc/self/nothing", 1));
  CHECK_EQ(errno, ENOENT);
  CHECK(!read_text("/proc/self", 1));  // a folder
  CHECK_EQ(errno, EISDIR);
  CHECK_EQ(read_text("/dev/null", 1).value(), "");
  CHECK_EQ(short_text("/proc/self/nothing"), "");
}
