// Damages a class description and lets the sweeper name the class.
#include "check.hpp"
#include "fuzz_input.hpp"
#include "hosted.hpp"
#include "memory.hpp"
#include "sweeper/blocks/types.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);

namespace reachscan::tests {
namespace {

constexpr uint64_t kCode = kWorld, kConstants = kWorld + heaps::kPage;
constexpr uint64_t kTable = kConstants + 0x40, kType = kConstants + 0x80, kText = kConstants + 0xc0;
constexpr uint64_t kUsed = 0x100;

void describe_class(Memory& memory) {
  memory.map(kCode, heaps::kPage, wire::kRead | wire::kExecute, abi::kFileBacked, 1);
  memory.map(kConstants, heaps::kPage, wire::kRead, abi::kFileBacked, 1);
  memory.put(kTable - 8, kType);
  memory.put(kTable, kCode + 16);
  memory.put(kType + 8, kText);
  std::memcpy(reinterpret_cast<void*>(kText), "*N4shop7SessionE", 17);
}

void damage(Input& input, Memory& memory) {
  while (!input.empty()) {
    auto at = input.take<uint16_t>();
    // A name or a table may also be at the end of the mapping.
    uint64_t base = (at & 0x8000) != 0 ? kConstants + heaps::kPage - kUsed : kConstants;
    uint64_t place = base + at % (kUsed - 8);
    auto how = input.take<unsigned char>();
    if (how % 4 == 0) {
      memory.put(place, input.take<uint64_t>());
    } else if (how % 4 == 1) {
      memory.put(place & ~7ull, kCode + input.take<uint16_t>() % (2 * heaps::kPage + 16));
    } else {
      memory.store(place, input.take<unsigned char>());
    }
  }
}

}  // namespace
}  // namespace reachscan::tests

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace reachscan;
  using namespace reachscan::tests;
  Input input(data, size);
  Host host;
  Memory memory;
  describe_class(memory);
  damage(input, memory);
  sweeper::TypeNames names(memory.space());
  for (uint64_t at = kConstants; at < kConstants + heaps::kPage; at += 8) {
    names.note(at);
    names.note(heaps::word(at));
  }
  names.send();
  for (const Frame& frame : host.stream)
    for (std::size_t i = 16; i < frame.payload.size(); ++i)
      CHECK(frame.payload[i] > ' ' && frame.payload[i] < 0x7f);
  return 0;
}
