// Writes the wire format (wire/protocol.hpp) to a file descriptor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "helper/failure.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {

// One record's payload under construction.
class Payload {
 public:
  Payload& u32(std::uint32_t value) { return raw(&value, sizeof value); }
  Payload& u64(std::uint64_t value) { return raw(&value, sizeof value); }
  Payload& str(std::string_view text) {
    u32(static_cast<std::uint32_t>(text.size()));
    return raw(text.data(), text.size());
  }
  Payload& raw(const void* bytes, std::size_t length) {
    bytes_.append(static_cast<const char*>(bytes), length);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Throws Failure(kWriteStream) when the reader has gone or the disk is full.
class Stream {
 public:
  explicit Stream(int fd) : fd_(fd) {}
  void hello();
  void record(wire::RecordType type, const Payload& payload);
  void frames(const void* bytes, std::size_t length);  // already framed
  void warning(std::string_view code, std::string_view message);
  void failure(const Failure& failure);

 private:
  int fd_;
};

}  // namespace reachscan::helper
