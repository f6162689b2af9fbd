// Reads damaged core files: their headers, their notes and the mappings derived from them.
#include "core_image.hpp"
#include "fuzz_input.hpp"
#include "helper/core/core_mappings.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);

namespace reachscan::tests {
namespace {

std::string damaged(Input& input) {
  std::string core = make_core();
  while (!input.empty()) {
    std::size_t at = input.take<std::uint16_t>() % core.size();
    auto how = input.take<unsigned char>();
    auto value = input.take<std::uint64_t>();
    std::size_t length = std::size_t{1} << how % 4;
    if (how % 32 == 31) {
      core.resize(std::max<std::size_t>(at, 1));
    } else {
      std::memcpy(core.data() + at, &value, std::min(length, core.size() - at));
    }
  }
  return core;
}

void check_order(const helper::CoreMappings& mappings) {
  std::uint64_t end = 0;
  for (const helper::CoreMapping& mapping : mappings.all) {
    // Whatever the file says, the mappings remain sorted and disjoint.
    if (mapping.entry.start < end || mapping.entry.end <= mapping.entry.start) __builtin_trap();
    if (mapping.bytes > mapping.entry.end - mapping.entry.start) __builtin_trap();
    end = mapping.entry.end;
  }
}

}  // namespace
}  // namespace reachscan::tests

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace reachscan;
  using namespace reachscan::tests;
  Input input(data, size);
  try {
    std::unique_ptr<helper::CoreFile> core = open_core(damaged(input));
    helper::OriginalFiles nowhere("/proc/self/task");
    check_order(helper::mappings_of(*core, nowhere));
  } catch (const helper::Failure&) {
    // Refused, as it should be.
  }
  return 0;
}
