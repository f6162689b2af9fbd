// Writes the wire format (wire/protocol.hpp) to a file descriptor.
#pragma once

#include <atomic>
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
  // `wake`: see wake_reader(); -1 for none.
  explicit Stream(int fd, int wake = -1) : fd_(fd), wake_(wake) {}
  // `short_words`: the target is a 32-bit program.
  void hello(bool short_words);
  void record(wire::RecordType type, const Payload& payload);
  // Writes what the sweeper has found, already framed.
  void results(const void* bytes, std::size_t length);
  // Returns whether results have been sent: then no other method may start over.
  bool holds_results() const { return holds_results_; }
  void warning(std::string_view code, std::string_view message);
  void failure(const Failure& failure);

  // For a caller that must not wait for the reader: drops the record if there is no room at once.
  void last_failure(const Failure& failure);

  // Stops writing: the next attempt fails as if the reader had closed its end. Thread-safe.
  void give_up() { given_up_ = true; }

  // Wakes the reader, whose own work waits until the target runs again: otherwise a thread to be
  // stopped might have to wait for a processor until the reader's time slice is over.
  void wake_reader();

 private:
  void write(const void* bytes, std::size_t length);

  int fd_;
  int wake_;
  bool holds_results_ = false;
  std::atomic<bool> given_up_{false};
};

}  // namespace reachscan::helper
