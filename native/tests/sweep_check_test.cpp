// What the helper accepts from a clone that another process may have written to.
#include "helper/sweep/sweep_check.hpp"

#include <cstring>

#include "check.hpp"
#include "helper/failure.hpp"
#include "helper/stream.hpp"

namespace reachscan::tests {
namespace {

using helper::Payload;
using helper::SweepCheck;
using std::uint32_t;
using std::uint64_t;

constexpr uint64_t kHeapBytes = 1 << 16;
constexpr uint64_t kBlocks = kHeapBytes / 8;

std::vector<abi::Mapping> mappings() {
  return {{0x1000, 0x1000 + kHeapBytes, wire::kRead | wire::kWrite, 0, 0, 0},
          {0x100000, 0x200000, wire::kRead, abi::kFileBacked, 1, 0},
          {0x10000000, 0x20000000, wire::kRead | wire::kWrite, abi::kAbsent, 0, 0}};
}

std::string frame(uint32_t type, const Payload& payload) {
  return Payload().u32(type).u32(static_cast<uint32_t>(payload.bytes().size())).bytes() +
         payload.bytes();
}

std::string heap(uint64_t blocks = 8, uint64_t bytes = 1024, uint32_t regions = 0) {
  return frame(wire::kHeap, Payload().str("glibc").u64(blocks).u64(bytes).u32(1).u32(regions));
}

// Direct leaks of 24 bytes with their shapes.
std::string leaks(uint32_t count, uint64_t size = 24, uint32_t parent = wire::kDirect) {
  Payload columns, shapes;
  columns.u32(count).u32(wire::kLeadWords);
  for (uint32_t i = 0; i < count; ++i) columns.u64(0x1010 + 32 * i);
  for (uint32_t i = 0; i < count; ++i) columns.u64(size);
  for (uint32_t i = 0; i < count; ++i) columns.u32(parent);
  for (uint32_t i = 0; i < count * wire::kLeadWords; ++i) columns.u64(0);
  shapes.u32(count).raw(std::string(count, 0).data(), count);
  return frame(wire::kLeaks, columns) + frame(wire::kShapes, shapes);
}

std::string type_name(std::size_t length) {
  return frame(wire::kTypes, Payload().u32(1).u64(0x100010).str(std::string(length, 'x')));
}

std::string contents(uint32_t leak, std::size_t length) {
  return frame(wire::kContents, Payload().u32(1).u32(leak).str(std::string(length, 'x')));
}

std::string doubt(uint32_t first, uint32_t count, uint32_t reason) {
  return frame(wire::kDoubts, Payload().u32(1).u32(first).u32(count).u32(reason));
}

// The origins of `count` leaks, or of kinds of 32 bytes each.
std::string origins(uint32_t type, uint32_t count) {
  uint64_t width = type == wire::kOrigins ? 24 : 32;
  return frame(type, Payload().u32(count).raw(std::string(count * width, 0).data(), count * width));
}

std::string recorder(uint32_t ranges) {
  std::string head(wire::head_bytes(wire::kRecorder), 0), rows(ranges * 16, 0);
  Payload payload;
  payload.raw(head.data(), head.size()).u32(ranges).raw(rows.data(), rows.size());
  return frame(wire::kRecorder, payload);
}

std::string stack_nodes(uint32_t count) {
  return frame(wire::kStackNodes,
               Payload().u32(count).raw(std::string(20 * count, 0).data(), 20 * count));
}

std::string recorded_thread(std::size_t length) {
  return frame(wire::kRecordedThreads,
               Payload().u32(1).u32(1).u32(7).str(std::string(length, 'x')));
}

std::string recorded_mappings(uint32_t count) {
  std::string rows(36ull * count, 0);
  return frame(wire::kRecordedMappings, Payload().u32(count).raw(rows.data(), rows.size()));
}

struct Check : SweepCheck {
  explicit Check(abi::Task task = abi::Task::kFindLeaks) : SweepCheck(bounds(task)) {}

  static helper::SweepBounds bounds(abi::Task task) {
    helper::SweepBounds bounds = helper::bounds_of(task, mappings(), 16);
    bounds.contents = 64;
    bounds.threads = 2;
    return bounds;
  }
  void send(const std::string& text) {
    frames(reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
};

template <typename Action>
void check_refused(const char* what, Action action) {
  try {
    action();
  } catch (const helper::Failure& failure) {
    CHECK(failure.code == helper::Code::kCloneTampered);
    CHECK(std::string(failure.what()).find(what) != std::string::npos);
    return;
  }
  fail(__FILE__, __LINE__, std::string("not refused: ") + what);
}

void check_refused(const char* what, const std::string& text,
                   abi::Task task = abi::Task::kFindLeaks) {
  Check check(task);
  check_refused(what, [&] { check.send(text); });
}

void check_end_refused(const char* what, const std::string& text, const abi::Totals& totals) {
  Check check;
  check.send(text);
  check_refused(what, [&] { check.finish(totals); });
}

CASE(what_a_sweeper_sends_passes) {
  Check check;
  check.phase(wire::kEnumerate);
  check.send(heap(8, 1024, 1));
  check.send(frame(wire::kRegions, Payload().u32(1).u64(0x1000).u64(0x2000).u32(1).u32(0)));
  check.phase(wire::kMark);
  check.phase(wire::kCollect);
  check.send(leaks(2) + leaks(1, 100, 1) + contents(0, 64));
  check.send(doubt(2, 1, wire::kTagged) + type_name(1023));
  check.finish({8, 1024, 3, 148, 2, 48});
}

CASE(no_more_rows_than_memory) {
  check_refused("the heap is larger than the memory", heap(kBlocks + 1));
  check_refused("the heap is larger than the memory", heap(8, 1ull << 40));
  check_refused("the heap is larger than the memory", heap(8, 1024, kBlocks + 1));
  check_refused("more leaks than blocks", heap(2) + leaks(3));
  check_refused("more leaks than blocks", heap(2) + leaks(2) + leaks(1));
  check_refused("larger than the heap", heap(8, 100) + leaks(1, 101));
  check_refused("larger than the heap", heap(8, 100) + leaks(2, ~0ull));
  check_refused("more rows than memory", heap() + frame(wire::kRegions, Payload().u32(1 << 28)));
  std::string references = frame(wire::kReferences, Payload().u32(1 << 28));
  check_refused("more rows than memory", heap() + references, abi::Task::kFindReferences);
  std::string kinds = frame(wire::kKinds, Payload().u32(1 << 28).u32(wire::kLeadWords));
  check_refused("more kinds than blocks", heap() + kinds, abi::Task::kCountKinds);
}

CASE(endless_records_end) {
  Check check;
  check.send(heap());
  check_refused("too many types", [&] {
    for (;;) check.send(type_name(100));
  });
  Check other;
  other.send(heap() + leaks(1));
  check_refused("contents of too many leaks", [&] {
    for (;;) other.send(contents(0, 8));
  });
  Check third;
  check_refused("progress too often", [&] {
    for (;;) third.phase(wire::kMark);
  });
}

CASE(records_are_whole) {
  std::string text = heap();
  check_refused("cut off", text.substr(0, 7));
  check_refused("cut off", text.substr(0, text.size() - 1));
  check_refused("too short", frame(wire::kHeap, Payload().str("glibc")));
  check_refused("too long", frame(wire::kHeap, Payload().str("").u64(0).u64(0).u64(0).u32(0)));
  check_refused("a text is too long", frame(wire::kHeap, Payload().u32(~0u)));
  check_refused("a text is too long", heap() + type_name(1024));
  check_refused("a text is too long", heap() + leaks(1) + contents(0, 65));
}

CASE(only_records_of_the_task_in_their_order) {
  check_refused("no type that it sends", frame(wire::kFinal, Payload()));
  check_refused("no type that it sends", frame(~0u, Payload()));
  check_refused("no type that it sends", heap() + leaks(1), abi::Task::kCountKinds);
  check_refused("no type that it sends", heap(), abi::Task::kListSuspects);
  check_refused("out of order", leaks(1));
  check_refused("out of order", heap() + leaks(1) + heap());
  check_refused("more heaps than allocators", [] {
    std::string heaps;
    for (int i = 0; i < 17; ++i) heaps += heap(0, 0, 0);
    return heaps;
  }());
  std::string shapes = frame(wire::kShapes, Payload().u32(0));
  check_refused("out of order", heap() + shapes);
  check_refused("out of order", heap() + leaks(1) + shapes);
  check_refused("another length", heap() + leaks(1).substr(0, 8 + 8 + 84) + shapes);
  std::string warning = frame(wire::kWarning, Payload().str("a").str("b"));
  check_refused("came twice", heap() + warning + warning);
  check_refused("before its parent", heap() + leaks(1, 24, 0));
  check_refused("of no leak", heap() + leaks(1) + contents(1, 8));
  check_refused("came twice", heap() + leaks(1) + doubt(0, 1, 1) + doubt(0, 1, 1));
}

CASE(the_end_adds_up) {
  check_end_refused("records are missing", "", {});
  check_end_refused("records are missing", heap(8, 1024, 1), {8, 1024, 0, 0, 0, 0});
  check_end_refused("do not add up", heap() + leaks(1), {8, 1024, 1, 25, 1, 25});
  check_end_refused("do not add up", heap() + leaks(1), {8, 1024, 2, 24, 1, 24});
  check_end_refused("about no leak", heap() + leaks(1) + doubt(0, 2, 1), {8, 1024, 1, 24, 1, 24});
}

CASE(other_requests) {
  Check check(abi::Task::kListSuspects);
  check_refused("more suspects than memory", [&] { check.suspects(kBlocks + 1); });
  check.suspects(kBlocks);
  check_refused("nobody asked", [&] { check.suspects(1); });
  check_refused("nobody asked", [] { Check().suspects(1); });
  check.thread(1, true);
  check_refused("a thread", [&] { check.thread(2, true); });
  check_refused("a thread", [&] { check.thread(1, false); });
  check.phase(wire::kMark);
  check_refused("phases", [&] { check.phase(wire::kEnumerate); });
  check_refused("phases", [&] { check.phase(~0ull); });
  abi::QuiesceHint hint{};
  hint.mutex_count = abi::QuiesceHint::kMaxMutexes + 1;
  check_refused("too many locks", [&] { check.hint(hint); });
}

CASE(origins_follow_what_they_are_of) {
  Check check;
  check.send(heap() + leaks(2) + origins(wire::kOrigins, 2) + leaks(1) +
             origins(wire::kOrigins, 1) + recorder(2) + stack_nodes(3) + recorded_thread(16));
  std::string one = origins(wire::kOrigins, 1);
  check_refused("another length", heap() + leaks(2) + one);
  check_refused("out of order", heap() + one);
  check_refused("out of order", heap() + leaks(1) + one + one);
  check_refused("no type that it sends", heap() + leaks(1) + origins(wire::kKindOrigins, 1));
  check_refused("out of order", heap() + origins(wire::kKindOrigins, 0), abi::Task::kCountKinds);
}

CASE(what_a_recorder_has_is_bounded) {
  check_refused("came twice", heap() + recorder(0) + recorder(0));
  check_refused("too many ranges", heap() + recorder(17));
  check_refused("a text is too long", heap() + recorded_thread(17));
  check_refused("too many mappings", heap() + recorded_mappings(1 << 16) + recorded_mappings(1));
  check_refused("a record is cut off", heap() + recorded_mappings(2).erase(40, 1));
  Check check;
  check.send(heap() + recorded_mappings(0) + recorded_mappings(1 << 16));
  check_refused("more callers than memory", [&] {
    for (;;) check.send(stack_nodes(1 << 10));
  });
}

}  // namespace
}  // namespace reachscan::tests
