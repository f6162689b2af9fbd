// Composes text in a buffer of fixed size, and counts what did not fit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reachscan::library {

class Text {
 public:
  Text(char* buffer, std::size_t size) : buffer_(buffer), size_(size) { end(); }

  Text& str(const char* text) {
    while (*text != 0) put(*text++);
    return *this;
  }
  Text& str(const char* text, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) put(text[i]);
    return *this;
  }
  Text& number(std::uint64_t value) { return digits(value, 10, 1); }
  Text& hex(std::uint64_t value, unsigned least = 1) { return digits(value, 16, least); }
  // Appends the number and a noun, with the plural's s if necessary.
  Text& count(std::uint64_t value, const char* noun) {
    return number(value).str(" ").str(noun).str(value == 1 ? "" : "s");
  }
  Text& put(char c) {
    if (length_ + 1 < size_) buffer_[length_] = c;
    ++length_;
    end();
    return *this;
  }

  // Without the terminating zero, but including what did not fit.
  std::size_t length() const { return length_; }

 private:
  Text& digits(std::uint64_t value, unsigned base, unsigned least) {
    char reversed[20];
    unsigned count = 0;
    for (; value != 0 || count < least; value /= base)
      reversed[count++] = "0123456789abcdef"[value % base];
    while (count > 0) put(reversed[--count]);
    return *this;
  }

  void end() {
    if (size_ > 0) buffer_[length_ < size_ ? length_ : size_ - 1] = 0;
  }

  char* buffer_;
  std::size_t size_;
  std::size_t length_ = 0;
};

}  // namespace reachscan::library
