// Builds records in the output buffer and has the helper send them.
#pragma once

#include "sweeper/blob/host.hpp"

namespace reachscan::sweeper {

class Record {
 public:
  explicit Record(wire::RecordType type) : at_(control()->output + sizeof(wire::FrameHeader)) {
    header()->type = type;
  }

  Record& u32(uint32_t value) { return raw(&value, sizeof value); }
  Record& u64(uint64_t value) { return raw(&value, sizeof value); }
  Record& str(const char* text) {
    std::size_t length = 0;
    while (text[length] != 0) ++length;
    return u32(static_cast<uint32_t>(length)).raw(text, length);
  }
  Record& raw(const void* bytes, std::size_t length) {
    __builtin_memcpy(reinterpret_cast<void*>(at_), bytes, length);
    at_ += length;
    return *this;
  }

  std::size_t room() const { return control()->output + control()->output_capacity - at_; }

  void send() {
    uint64_t length = at_ - control()->output;
    header()->length = static_cast<uint32_t>(length - sizeof(wire::FrameHeader));
    request(abi::Request::kFlush, length);
  }

 private:
  wire::FrameHeader* header() const {
    return reinterpret_cast<wire::FrameHeader*>(control()->output);
  }

  uint64_t at_;
};

// Sends the regions of all arenas and mapped blocks, in as many records as necessary.
inline void send_regions(const heaps::BlockMap& blocks) {
  constexpr std::size_t kBatch = 8192;
  for (std::size_t first = 0; first < blocks.regions.size(); first += kBatch) {
    std::size_t count = blocks.regions.size() - first;
    if (count > kBatch) count = kBatch;
    Record record(wire::kRegions);
    record.u32(static_cast<uint32_t>(count));
    for (std::size_t i = first; i < first + count; ++i) {
      const heaps::Region& region = blocks.regions[i];
      record.u64(region.start).u64(region.end).u32(region.kind).u32(region.arena);
    }
    record.send();
  }
}

}  // namespace reachscan::sweeper
