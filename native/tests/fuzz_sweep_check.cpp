// Damages the output of a sweeper, as a process that writes to the clone's memory could. What the
// helper lets pass must be complete, and no more than the target's memory has room for.
#include <string>
#include <vector>

#include "check.hpp"
#include "fuzz_input.hpp"
#include "helper/failure.hpp"
#include "helper/stream.hpp"
#include "helper/sweep/sweep_check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);

namespace reachscan::tests {
namespace {

using helper::Payload;
using std::uint32_t;
using std::uint64_t;

constexpr uint64_t kHeapBytes = 1 << 12;
constexpr uint64_t kMaxBlocks = kHeapBytes / 16;
constexpr uint32_t kContents = 64;

struct Record {
  uint32_t type;
  std::string payload;
};

Record leaks(uint32_t count) {
  Payload columns;
  columns.u32(count).u32(wire::kLeadWords);
  for (uint32_t i = 0; i < count; ++i) columns.u64(0x1010 + 32 * i);
  for (uint32_t i = 0; i < count; ++i) columns.u64(24);
  for (uint32_t i = 0; i < count; ++i) columns.u32(wire::kDirect);
  columns.raw(std::string(count * wire::kLeadWords * 8, 0).data(), count * wire::kLeadWords * 8);
  return {wire::kLeaks, columns.bytes()};
}

// One record of each kind. The fuzzer finds out which task sends it.
std::vector<Record> records() {
  std::string row(40, 1);
  std::string kind(40 + 8 * wire::kLeadWords, 1);
  return {
      {wire::kHeap, Payload().str("glibc").u64(8).u64(1024).u32(1).u32(1).bytes()},
      {wire::kRegions, Payload().u32(1).u64(0x1000).u64(0x2000).u32(1).u32(0).bytes()},
      {wire::kWarning, Payload().str("code").str("text").bytes()},
      leaks(2),
      {wire::kShapes, Payload().u32(2).raw("\1\2", 2).bytes()},
      {wire::kContents, Payload().u32(1).u32(0).str("contents").bytes()},
      {wire::kTypes, Payload().u32(1).u64(0x100010).str("1A").bytes()},
      {wire::kDoubts, Payload().u32(1).u32(1).u32(1).u32(wire::kTagged).bytes()},
      {wire::kKinds, Payload().u32(1).u32(wire::kLeadWords).raw(kind.data(), kind.size()).bytes()},
      {wire::kBlock, Payload().raw(row.data(), 32).bytes()},
      {wire::kReferences, Payload().u32(1).raw(row.data(), row.size()).bytes()},
      {wire::kChain, Payload().u32(1).raw(row.data(), row.size()).bytes()},
  };
}

void damage(Input& input, Record& record) {
  auto how = input.take<unsigned char>();
  std::string& bytes = record.payload;
  std::size_t at = bytes.empty() ? 0 : input.take<uint16_t>() % bytes.size();
  if (how % 4 == 0) {
    record.type = input.take<unsigned char>();
  } else if (how % 4 == 1) {
    bytes.resize(at);
  } else if (how % 4 == 2) {
    bytes.append(input.take<unsigned char>(), 0);
  } else {
    auto value = input.take<uint32_t>();
    std::memcpy(bytes.data() + at, &value, std::min(sizeof value, bytes.size() - at));
  }
}

std::string frame(const Record& record, std::size_t excess) {
  auto length = static_cast<uint32_t>(record.payload.size() + excess);
  return Payload().u32(record.type).u32(length).bytes() + record.payload;
}

// The input says which records arrive, and which of them are damaged.
std::size_t send(Input& input, helper::SweepCheck& check) {
  const std::vector<Record> whole = records();
  std::size_t passed = 0;
  while (!input.empty()) {
    auto which = input.take<unsigned char>();
    if (which >= 240) {
      check.phase(input.take<unsigned char>());
      continue;
    }
    Record record = whole[which % whole.size()];
    if (which >= 120) damage(input, record);
    std::string bytes = frame(record, which % 60 == 59 ? input.take<unsigned char>() : 0);
    unsigned repeats = which % 24 < 12 ? 1 : 400;
    for (unsigned n = 0; n < repeats; ++n) {
      check.frames(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
      passed += bytes.size();
    }
  }
  return passed;
}

}  // namespace
}  // namespace reachscan::tests

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace reachscan;
  using namespace reachscan::tests;
  Input input(data, size);
  auto task = static_cast<abi::Task>(input.take<unsigned char>() % 6);
  std::vector<abi::Mapping> mappings{
      {0x1000, 0x1000 + kHeapBytes, wire::kRead | wire::kWrite, 0, 0, 0}};
  helper::SweepBounds bounds = helper::bounds_of(task, mappings, 4);
  bounds.contents = kContents;
  bounds.digests = input.take<unsigned char>() % 2 != 0;
  helper::SweepCheck check(bounds);
  // A leak, a kind or a region for each block, a row for each word, and the names of all types.
  constexpr std::size_t kMax = kMaxBlocks * 512 + kHeapBytes / 8 * 64 + (1 << 17) * 1100;
  try {
    CHECK(send(input, check) < kMax);
    check.finish({8, 1024, 2, 48, 2, 48});
  } catch (const helper::Failure& failure) {
    CHECK(failure.code == helper::Code::kCloneTampered);
  }
  return 0;
}
