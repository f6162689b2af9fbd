// What a scan of a recorded process reports about where blocks were allocated.
#include <set>

#include "recorded.hpp"
#include "sweep.hpp"

namespace reachscan::tests {
namespace {

constexpr uint64_t kTables = kWorld + (5ull << 30);
constexpr uint32_t kPid = 4711;

struct Origin {
  uint32_t node, thread;
  uint64_t first_ms, last_ms, requested;
};

struct Node {
  uint32_t parent, module;
  uint64_t pc;
};

template <typename T>
T item(const Frame& frame, std::size_t offset, std::size_t i) {
  return heaps::load<T>(reinterpret_cast<uint64_t>(frame.payload.data()) + offset + i * sizeof(T));
}

// A recorded process whose leaks are known.
struct RecordedSweep : Sweep {
  RecordedSweep() : Sweep("2.43"), recorded(scene.memory, kTables, kPid) {
    worker = recorded.thread("worker", 77);
    outer = recorded.node(0, 0x1111);
    inner = recorded.node(outer, 0x2222);
  }

  void record(uint64_t block, uint64_t requested, uint64_t time_ms = 5) {
    recorded.add({block, requested, time_ms, inner, worker});
  }

  // Maps leaks, or the examples of kinds, to their origins.
  std::map<uint64_t, Origin> origins() const {
    std::map<uint64_t, Origin> found;
    std::vector<Leak> leaks = host.leaks();
    std::size_t at = 0;
    for (const Frame& frame : host.frames(wire::kOrigins)) {
      auto n = item<uint32_t>(frame, 0, 0);
      for (std::size_t i = 0; i < n; ++i) {
        auto time = item<uint64_t>(frame, 4 + 8ull * n, i);
        found[leaks.at(at++).address] = {item<uint32_t>(frame, 4, i),
                                         item<uint32_t>(frame, 4 + 4ull * n, i), time, time,
                                         item<uint64_t>(frame, 4 + 16ull * n, i)};
      }
    }
    CHECK(at == 0 || at == leaks.size());
    return found;
  }

  std::map<uint32_t, Node> nodes() const {
    std::map<uint32_t, Node> found;
    for (const Frame& frame : host.frames(wire::kStackNodes)) {
      auto n = item<uint32_t>(frame, 0, 0);
      for (std::size_t i = 0; i < n; ++i)
        found[item<uint32_t>(frame, 4, i)] = {item<uint32_t>(frame, 4 + 4ull * n, i),
                                              item<uint32_t>(frame, 4 + 8ull * n, i),
                                              item<uint64_t>(frame, 4 + 12ull * n, i)};
    }
    return found;
  }

  Recorded recorded;
  uint32_t worker, outer, inner;
};

CASE(leaks_come_with_their_origins) {
  RecordedSweep sweep;
  uint64_t block = sweep.scene.leaks[0];
  sweep.record(block, 0x21, 5);
  uint32_t unused = sweep.recorded.node(0, 0x3333);
  sweep.run();
  sweep.check_leaks(sweep.all());
  std::map<uint64_t, Origin> origins = sweep.origins();
  CHECK_EQ(origins.size(), sweep.scene.blocks.size());
  Origin origin = origins.at(block);
  CHECK_EQ(origin.node, sweep.inner);
  CHECK_EQ(origin.thread, sweep.worker);
  CHECK_EQ(origin.first_ms, 5u);
  CHECK_EQ(origin.requested, 0x21u);
  for (const auto& [address, other] : origins)
    CHECK_EQ(other.thread == wire::kNotRecorded, address != block);
  std::map<uint32_t, Node> nodes = sweep.nodes();
  CHECK_EQ(nodes.size(), 2u);
  CHECK_EQ(nodes.count(unused), 0u);
  CHECK_EQ(nodes.at(sweep.inner).pc, 0x2222u);
  CHECK_EQ(nodes.at(sweep.inner).parent, sweep.outer);
  CHECK_EQ(nodes.at(sweep.outer).parent, 0u);
  CHECK_EQ(sweep.host.frames(wire::kRecordedThreads).size(), 1u);
}

CASE(a_record_of_more_than_a_block_holds_is_that_of_a_former_one) {
  RecordedSweep sweep;
  uint64_t full = sweep.scene.leaks[0], reused = sweep.scene.leaks[1];
  sweep.record(full, sweep.scene.blocks.at(full));
  sweep.record(reused, sweep.scene.blocks.at(reused) + 1);
  sweep.run();
  std::map<uint64_t, Origin> origins = sweep.origins();
  CHECK_EQ(origins.at(full).thread, sweep.worker);
  CHECK_EQ(origins.at(reused).thread, wire::kNotRecorded);
}

CASE(a_process_that_is_not_recorded_gets_nothing) {
  Sweep sweep("2.43");
  sweep.run();
  for (auto type : {wire::kRecorder, wire::kOrigins, wire::kStackNodes, wire::kRecordedThreads})
    CHECK(sweep.host.frames(type).empty());
}

// The keys are addresses of blocks.
CASE(tables_are_no_roots) {
  RecordedSweep sweep;
  for (const auto& [block, size] : sweep.scene.blocks) sweep.record(block, size);
  sweep.run();
  sweep.check_leaks(sweep.all());
  CHECK_EQ(sweep.host.frames(wire::kRecorder).size(), 1u);
  CHECK_EQ(sweep.origins().size(), sweep.scene.blocks.size());
}

// As in a core file that gdb wrote.
CASE(the_page_in_front_of_tables_may_be_one_to_read) {
  RecordedSweep sweep;
  sweep.scene.memory.protect(kTables - heaps::kPage, heaps::kPage, wire::kRead);
  for (const auto& [block, size] : sweep.scene.blocks) sweep.record(block, size);
  sweep.run();
  sweep.check_leaks(sweep.all());
}

// A page that the program never wrote is described as a separate mapping.
CASE(tables_in_pieces_are_one) {
  RecordedSweep sweep;
  for (const auto& [block, size] : sweep.scene.blocks) sweep.record(block, size);
  sweep.scene.memory.leave_out(kTables + 14 * kPage, kPage);
  sweep.run();
  sweep.check_leaks(sweep.all());
  CHECK_EQ(sweep.host.frames(wire::kRecorder).size(), 1u);
}

CASE(how_it_was_recorded_is_told) {
  RecordedSweep sweep;
  recorder::Header& header = sweep.recorded.header();
  header.options.range_count = 2;
  header.options.ranges[1] = {32, 64};
  header.lost = 7;
  header.started_monotonic_ns = 1'000'000'000;
  sweep.host.control.monotonic_ns = 3'500'000'000;
  sweep.record(sweep.scene.leaks[0], 8);
  sweep.run();
  Frame frame = sweep.host.frames(wire::kRecorder).at(0);
  CHECK_EQ(item<uint64_t>(frame, 0, 0), kTables);
  CHECK_EQ(item<uint64_t>(frame, 48, 0), 2500u);  // ms since the start
  CHECK_EQ(item<uint64_t>(frame, 88, 0), 1u);     // records
  CHECK_EQ(item<uint64_t>(frame, 96, 0), 7u);     // lost
  CHECK_EQ(item<uint32_t>(frame, 104, 0), 2u);
  CHECK_EQ(item<uint64_t>(frame, 108, 3), 64u);
}

CASE(modules_that_were_closed_are_named) {
  RecordedSweep sweep;
  uint32_t module = sweep.recorded.closed_module("/lib/gone.so", 0x7000);
  uint32_t node = sweep.recorded.closed_node(sweep.outer, 0x7123, module);
  sweep.recorded.add({sweep.scene.leaks[0], 8, 5, node, sweep.worker});
  sweep.run();
  CHECK_EQ(sweep.nodes().at(node).module, module);
  CHECK_EQ(sweep.nodes().at(sweep.outer).module, 0u);
  Frame frame = sweep.host.frames(wire::kClosedModules).at(0);
  CHECK_EQ(item<uint64_t>(frame, 8, 0), 0x7000u);
  CHECK_EQ(std::string(frame.payload.begin() + 20, frame.payload.begin() + 32),
           std::string("/lib/gone.so"));
}

CASE(python_functions_are_named_if_a_stack_has_them) {
  RecordedSweep sweep;
  sweep.recorded.header().python = 0x030b | recorder::kIsPython | recorder::kPythonUnderstood;
  sweep.recorded.python_function(1, "unused", "a.py");
  uint32_t function = sweep.recorded.python_function(2, "grow", "b.py");
  uint64_t pc = recorder::python_pc(function, 17);
  uint32_t node = sweep.recorded.node(sweep.outer, pc);
  uint32_t unknown = sweep.recorded.node(node, recorder::python_pc(99, 1));
  sweep.recorded.add({sweep.scene.leaks[0], 8, 5, unknown, sweep.worker});
  sweep.run();
  CHECK_EQ(sweep.nodes().at(node).pc, pc);
  CHECK_EQ(item<uint32_t>(sweep.host.frames(wire::kInterpreter).at(0), 0, 0), 0x030bu);
  CHECK_EQ(item<uint32_t>(sweep.host.frames(wire::kInterpreter).at(0), 4, 0), 1u);
  std::vector<Frame> functions = sweep.host.frames(wire::kPythonFunctions);
  CHECK_EQ(functions.size(), 1u);
  CHECK_EQ(item<uint32_t>(functions.at(0), 4, 0), function);
  CHECK_EQ(std::string(functions.at(0).payload.begin() + 12, functions.at(0).payload.begin() + 16),
           std::string("grow"));
}

// Kinds that differ only in their origin are reported separately.
CASE(live_blocks_come_with_their_origins) {
  RecordedSweep sweep;
  sweep.host.control.task = abi::Task::kCountKinds;
  std::map<uint64_t, std::vector<uint64_t>> by_size;
  for (const auto& [block, size] : sweep.scene.blocks) by_size[size].push_back(block);
  uint64_t time = 0;
  for (const auto& [block, size] : sweep.scene.blocks) sweep.record(block, size - 1, ++time);
  sweep.run();
  uint64_t oldest = ~0ull, newest = 0;
  std::vector<Frame> kinds = sweep.host.frames(wire::kKinds);
  std::vector<Frame> frames = sweep.host.frames(wire::kKindOrigins);
  CHECK_EQ(frames.size(), kinds.size());
  CHECK(!frames.empty());
  for (std::size_t f = 0; f < frames.size(); ++f) {
    auto n = item<uint32_t>(frames[f], 0, 0);
    for (std::size_t i = 0; i < n; ++i) {
      CHECK_EQ(item<uint32_t>(frames[f], 4, i), sweep.inner);
      oldest = std::min(oldest, item<uint64_t>(frames[f], 4 + 8ull * n, i));
      newest = std::max(newest, item<uint64_t>(frames[f], 4 + 16ull * n, i));
      CHECK_EQ(item<uint64_t>(frames[f], 4 + 24ull * n, i),
               item<uint64_t>(kinds[f], 8 + 16ull * n, i) - 1);  // its usable bytes
    }
  }
  CHECK_EQ(oldest, 1u);
  CHECK_EQ(newest, sweep.scene.blocks.size());
}

CASE(mappings_come_with_their_origins) {
  RecordedSweep sweep;
  uint32_t other = sweep.recorded.node(0, 0x7777);
  uint64_t time = uint64_t{other} << 36 | 9;
  auto worker = static_cast<uint16_t>(sweep.worker);
  sweep.recorded.mapping({0x7000'0000, 0x7000'2000, time, 1, worker, recorder::kMapped});
  sweep.recorded.mapping({0x7100'0000, 0x7100'0001, 9, 2, 0, recorder::kDetachedStack});
  sweep.run();
  std::vector<Frame> frames = sweep.host.frames(wire::kRecordedMappings);
  CHECK_EQ(frames.size(), 1u);
  // The second is left out: its origin is unknown.
  CHECK_EQ(item<uint32_t>(frames[0], 0, 0), 1u);
  CHECK_EQ(item<uint64_t>(frames[0], 4, 0), 0x7000'0000u);
  CHECK_EQ(item<uint64_t>(frames[0], 4, 1), 0x7000'2000u);
  CHECK_EQ(item<uint32_t>(frames[0], 20, 0), uint32_t{recorder::kMapped});
  CHECK_EQ(item<uint32_t>(frames[0], 20, 1), other);
  CHECK_EQ(item<uint32_t>(frames[0], 20, 2), sweep.worker);
  CHECK_EQ(item<uint64_t>(frames[0], 32, 0), 9u);
  CHECK_EQ(sweep.nodes().at(other).pc, 0x7777u);
}

CASE(damaged_tables_are_survived) {
  RecordedSweep sweep;
  recorder::Node* nodes = sweep.recorded.tables().nodes();
  uint32_t circle = sweep.recorded.node(0, 0x4444), far = sweep.recorded.node(0xffffffff, 0x5555);
  nodes[circle].parent |= circle;
  uint32_t unfinished = sweep.recorded.node(0, 0x6666);
  nodes[unfinished].parent &= ~recorder::kNodeReady;
  const std::vector<uint64_t>& leaks = sweep.scene.leaks;
  sweep.recorded.add({leaks[0], 8, 5, circle, sweep.worker});
  sweep.recorded.add({leaks[1], 8, 5, far, recorder::kMaxThreads - 1});
  sweep.recorded.add({leaks[2], 8, 5, unfinished, 0});
  sweep.recorded.add({leaks[3], 8, 5, recorder::kMaxNodes - 1, 0});
  sweep.record(leaks[4], 1 << 30);  // larger than the block
  sweep.run();
  sweep.check_leaks(sweep.all());
  std::map<uint64_t, Origin> origins = sweep.origins();
  CHECK_EQ(origins.at(leaks[0]).node, circle);
  CHECK_EQ(origins.at(leaks[1]).thread, 0u);
  CHECK_EQ(origins.at(leaks[4]).thread, wire::kNotRecorded);
  CHECK_EQ(sweep.nodes().size(), 2u);
}

CASE(what_only_looks_like_tables_is_memory_of_the_program) {
  for (int damage = 0; damage < 6; ++damage) {
    RecordedSweep sweep;
    recorder::Header& header = sweep.recorded.header();
    sweep.scene.memory.put(kTables + 15 * kPage, sweep.scene.leaks[0]);
    if (damage == 0) header.magic ^= 1;
    if (damage == 1) header.layout = 99;
    if (damage == 2) header.ready = 0;
    if (damage == 3) header.bytes = Recorded::kBytes + 1;
    if (damage == 4) header.nodes.count = ~0ull;
    if (damage == 5) header.records.offset = ~0ull - 63;
    sweep.run();
    std::set<uint64_t> expected = sweep.all();
    expected.erase(sweep.scene.leaks[0]);
    sweep.check_leaks(expected);
    CHECK(sweep.host.frames(wire::kRecorder).empty());
  }
}

}  // namespace
}  // namespace reachscan::tests
