// Reads the kernel's text files and splits them into lines and words. The streams of the standard
// library can do that too, but would make up a third of the helper.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reachscan::helper {

// Reads a file, or at least its first `most` bytes. Returns nothing if it cannot be read;
// errno says why.
inline std::optional<std::string> read_text(const std::string& path, std::size_t most) {
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char buffer[1 << 16];
  ssize_t length = 0;
  while (text.size() < most && (length = read(fd, buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<std::size_t>(length));
  int error = errno;
  close(fd);
  errno = error;
  return length < 0 ? std::nullopt : std::optional(std::move(text));
}

// Reads a short file, such as one of /sys. Returns an empty string if it cannot be read.
inline std::string short_text(const std::string& path) {
  return read_text(path, 1).value_or(std::string());
}

// Takes the first line off a text, without its end.
inline std::string_view take_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

// Takes the first word off a text, and the blanks before it; empty if there is none.
inline std::string_view take_word(std::string_view& text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

inline void skip_words(std::string_view& text, int count) {
  for (int i = 0; i < count; ++i) take_word(text);
}

// Returns the number that a text begins with, if it begins with one.
template <typename Number>
std::optional<Number> number_at_start(std::string_view text, int base = 10) {
  Number value{};
  bool known =
      std::from_chars(text.data(), text.data() + text.size(), value, base).ec == std::errc{};
  return known ? std::optional(value) : std::nullopt;
}

}  // namespace reachscan::helper
