// Parses the records. Anything that does not fit its frame counts as damage.
#include "library/result_reader.hpp"

#include <cstring>

#include "library/text.hpp"

namespace reachscan::library {
namespace {

constexpr char kDamaged[] = "the helper's answer is damaged";
constexpr char kBrokenOff[] = "the helper ended before its answer was complete";
constexpr char kNoMemory[] = "there is no memory for the leaks";

}  // namespace

// The fields of a record, in sequence. Reads zeros past the end.
class ResultReader::Fields {
 public:
  Fields(const char* at, std::size_t left) : at_(at), left_(left) {}

  template <typename T>
  T next() {
    T value{};
    const char* from = skip(sizeof value);
    if (from != nullptr) std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::uint32_t u32() { return next<std::uint32_t>(); }
  std::uint64_t u64() { return next<std::uint64_t>(); }

  // Returns this many bytes, null if there are fewer.
  const char* skip(std::size_t bytes) {
    if (bytes > left_) {
      left_ = 0;
      return nullptr;
    }
    const char* from = at_;
    at_ += bytes;
    left_ -= bytes;
    return from;
  }
  void skip_text() { skip(u32()); }
  std::size_t left() const { return left_; }

  // A column of n values.
  Fields column(std::size_t n, std::size_t each) {
    std::size_t bytes = n * each;
    const char* from = skip(bytes);
    return {from, from != nullptr ? bytes : 0};
  }

 private:
  const char* at_;
  std::size_t left_;
};

bool ResultReader::fail(const char* sentence, std::size_t length) {
  Text(error_, error_size_).str(sentence, length);
  return false;
}

bool ResultReader::read() {
  wire::Hello hello;
  if (!helper_.read(&hello, sizeof hello)) {
    if (int number = helper_.exec_error()) {
      Text(error_, error_size_)
          .str("the helper cannot be executed: errno ")
          .number(static_cast<std::uint64_t>(number));
      return false;
    }
    return fail(kBrokenOff, sizeof kBrokenOff - 1);
  }
  if (std::memcmp(hello.magic, wire::kMagic, sizeof hello.magic) != 0 ||
      hello.version != wire::kVersion)
    return fail(kDamaged, sizeof kDamaged - 1);
  return read_records();
}

bool ResultReader::read_records() {
  for (;;) {
    wire::FrameHeader frame;
    if (!helper_.read(&frame, sizeof frame)) return fail(kBrokenOff, sizeof kBrokenOff - 1);
    if (frame.length > wire::kMaxPayload) return fail(kDamaged, sizeof kDamaged - 1);
    if (!payload_.reserve(frame.length)) return fail(kNoMemory, sizeof kNoMemory - 1);
    if (!helper_.read(payload_.begin(), frame.length))
      return fail(kBrokenOff, sizeof kBrokenOff - 1);
    if (!take(frame.type, {payload_.begin(), frame.length})) return false;
    if (frame.type == wire::kFinal) return true;
  }
}

bool ResultReader::take(std::uint32_t type, Fields fields) {
  switch (type) {
    case wire::kLeaks:
      return take_leaks(fields);
    case wire::kStackNodes:
      return take_nodes(fields);
    case wire::kOrigins:
      take_origins(fields);
      return true;
    case wire::kDoubts:
      return take_doubts(fields);
    case wire::kSnapshot:
      fields.skip_text();
      fields.skip_text();
      pause_ns = fields.u64();
      return true;
    case wire::kFinal:
      mark_possible();
      allocations = fields.u64();
      bytes = fields.u64();
      return true;
    case wire::kFailure: {
      fields.skip(wire::bytes_of("u32 step, i32 errno, u32 tid, u64 address"));
      fields.skip_text();
      fields.skip_text();
      std::size_t length = fields.u32();
      const char* sentence = fields.skip(length);
      return fail(sentence != nullptr ? sentence : kDamaged, sentence != nullptr ? length : 0);
    }
  }
  return true;
}

bool ResultReader::take_leaks(Fields fields) {
  std::size_t n = fields.u32(), w = fields.u32();
  if (fields.left() != n * (8 + 8 + 4 + 8 * w) || 8 * w < REACHSCAN_CONTENTS)
    return fail(kDamaged, sizeof kDamaged - 1);
  Fields address = fields.column(n, 8), size = fields.column(n, 8), parent = fields.column(n, 4);
  batch_ = leaks.size();
  for (std::size_t i = 0; i < n; ++i) {
    Leak leak{address.u64(), size.u64(), 0, parent.u32() == wire::kDirect, false, {}};
    std::memcpy(leak.contents, fields.skip(8 * w), sizeof leak.contents);
    if (!leaks.push(leak)) return fail(kNoMemory, sizeof kNoMemory - 1);
  }
  return true;
}

void ResultReader::take_origins(Fields fields) {
  std::size_t n = fields.u32();
  Fields node = fields.column(n, 4);
  for (std::size_t i = batch_; i < leaks.size(); ++i) leaks[i].node = node.u32();
}

bool ResultReader::take_nodes(Fields fields) {
  std::size_t n = fields.u32();
  Fields number = fields.column(n, 4), parent = fields.column(n, 4);
  fields.column(n, 4);  // modules
  Fields pc = fields.column(n, 8);
  for (std::size_t i = 0; i < n; ++i)
    if (!nodes.push({pc.u64(), number.u32(), parent.u32()}))
      return fail(kNoMemory, sizeof kNoMemory - 1);
  return true;
}

bool ResultReader::take_doubts(Fields fields) {
  for (std::size_t n = fields.u32(); n > 0 && fields.left() > 0; --n) {
    std::uint64_t first = fields.u32(), count = fields.u32();
    fields.u32();  // the reason
    if (!doubts_.push({first, count})) return fail(kNoMemory, sizeof kNoMemory - 1);
  }
  return true;
}

void ResultReader::mark_possible() {
  for (const Doubt& doubt : doubts_)
    for (std::uint64_t i = doubt.first; i < leaks.size() && i - doubt.first < doubt.count; ++i)
      leaks[i].is_possible = true;
}

}  // namespace reachscan::library
