// Frames records and writes them completely, whatever the reader of the pipe does.
#include "helper/stream.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "arch/address_space.hpp"
#include "arch/machine.hpp"

namespace reachscan::helper {
namespace {

Payload failure_record(const Failure& failure) {
  return Payload()
      .u32(static_cast<std::uint32_t>(failure.step))
      .u32(static_cast<std::uint32_t>(failure.error))
      .u32(static_cast<std::uint32_t>(failure.tid))
      .u64(failure.address)
      .str(wire::step_name(failure.step))
      .str(wire::failure_name(failure.code))
      .str(failure.what());
}

Failure unwritable(int error) {
  return Failure(wire::Step::kWriteStream, Code::kInternal,
                 std::string("cannot write the result stream: ") + std::strerror(error), error);
}

}  // namespace

void Stream::write(const void* bytes, std::size_t length) {
  const auto* next = static_cast<const unsigned char*>(bytes);
  while (length > 0) {
    if (given_up_) throw unwritable(EPIPE);
    ssize_t written = ::write(fd_, next, length);
    if (written < 0) {
      if (errno == EINTR) continue;
      throw unwritable(errno);
    }
    next += written;
    length -= static_cast<std::size_t>(written);
  }
}

void Stream::results(const void* bytes, std::size_t length) {
  holds_results_ = true;
  write(bytes, length);
}

void Stream::wake_reader() {
  if (wake_ < 0) return;
  // A reader that is not waiting any more has gone.
  [[maybe_unused]] ssize_t written = ::write(wake_, "", 1);
  close(wake_);
  wake_ = -1;
}

void Stream::hello(bool short_words) {
  wire::Hello hello{};
  std::memcpy(hello.magic, wire::kMagic, sizeof hello.magic);
  hello.version = wire::kVersion;
  hello.byte_order = wire::kLittleEndian;
  hello.word_size = short_words ? 4 : 8;
  hello.machine = short_words ? arch::kShortElfMachine : arch::kElfMachine;
  hello.page_kib = arch::kPage >> 10;
  write(&hello, sizeof hello);
}

void Stream::record(wire::RecordType type, const Payload& payload) {
  wire::FrameHeader header{type, static_cast<std::uint32_t>(payload.bytes().size())};
  write(&header, sizeof header);
  write(payload.bytes().data(), payload.bytes().size());
}

void Stream::warning(std::string_view code, std::string_view message) {
  record(wire::kWarning, Payload().str(code).str(message));
}

void Stream::failure(const Failure& failure) { record(wire::kFailure, failure_record(failure)); }

// A pipe that poll() reports as writable has room for 4096 bytes.
void Stream::last_failure(const Failure& failure) {
  pollfd room{fd_, POLLOUT, 0};
  if (poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0) this->failure(failure);
}

}  // namespace reachscan::helper
