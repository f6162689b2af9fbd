// Interprets the bytes of a fuzzer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace reachscan::tests {

// Yields numbers from the input, then zeros.
class Input {
 public:
  Input(const unsigned char* data, std::size_t size) : at_(data), left_(size) {}

  template <typename T>
  T take() {
    T value{};
    std::size_t length = std::min(left_, sizeof value);
    std::memcpy(&value, at_, length);
    at_ += length;
    left_ -= length;
    return value;
  }
  bool empty() const { return left_ == 0; }

 private:
  const unsigned char* at_;
  std::size_t left_;
};

}  // namespace reachscan::tests
