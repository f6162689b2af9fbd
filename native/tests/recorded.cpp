// Tables of a recorder in the memory of a test.
#include "recorded.hpp"

#include "check.hpp"
#include "recorder/live_blocks.hpp"

namespace reachscan::tests {
namespace {

using heaps::kPage;

constexpr uint64_t kBuckets = 32;

}  // namespace

Recorded::Recorded(Memory& memory, uint64_t at, uint32_t pid)
    : tables_(reinterpret_cast<recorder::Header*>(at)) {
  memory.map(at - kPage, kPage, 0);
  memory.map(at, kBytes);
  memory.describe(at + kBytes, kPage, 0, 0);
  recorder::Header& h = header();
  h.magic = recorder::kMagic;
  h.layout = recorder::kLayout;
  h.bytes = kBytes;
  h.pid = pid;
  h.started_realtime_ns = 1'700'000'000'000'000'000;
  h.options.depth = 32;
  h.buckets = {kPage, kBuckets};
  h.records = {2 * kPage, kBuckets * recorder::kKeys};
  h.nodes = {4 * kPage, 256};
  h.threads = {6 * kPage, 8};
  h.modules = {8 * kPage, 8};
  h.functions = {10 * kPage, 8};
  h.used_nodes = h.used_threads = h.used_modules = 1;
  h.ready = 1;
  CHECK(recorder::is_valid(h, kBytes));
}

uint32_t Recorded::node(uint32_t parent, uint64_t pc) { return closed_node(parent, pc, 0); }

uint32_t Recorded::closed_node(uint32_t parent, uint64_t pc, uint32_t module) {
  uint64_t flags = recorder::kNodeReady | (module != 0 ? uint64_t{recorder::kNodeClosed} : 0);
  tables_.nodes()[header().used_nodes] = {pc, flags | uint64_t{module} << 32 | parent};
  return header().used_nodes++;
}

uint32_t Recorded::thread(const char* name, uint32_t tid) {
  recorder::ThreadRow& row = tables_.threads()[header().used_threads];
  std::strncpy(row.name, name, sizeof row.name);
  row.tid = tid;
  return header().used_threads++;
}

uint32_t Recorded::closed_module(const char* path, uint64_t bias) {
  recorder::ModuleRow& row = tables_.modules()[header().used_modules];
  std::strncpy(row.path, path, sizeof row.path);
  row.bias = bias;
  row.closed = 1;
  row.build_id_bytes = 3;
  std::memcpy(row.build_id, "\1\2\3", 3);
  return header().used_modules++;
}

uint32_t Recorded::python_function(uint32_t row, const char* name, const char* file) {
  recorder::PythonFunction& function = tables_.functions()[row];
  std::strncpy(function.name, name, sizeof function.name);
  std::strncpy(function.file, file, sizeof function.file);
  function.ready = 1;
  return row;
}

void Recorded::mapping(const recorder::MappingRow& row) {
  recorder::Header& h = header();
  h.options.with_mappings = 1;
  h.mappings = {12 * kPage, 8};
  recorder::MappingRow* rows = tables_.mappings();
  while (rows->start != 0) ++rows;
  *rows = row;
  CHECK(recorder::is_valid(h, kBytes));
}

void Recorded::add(const recorder::Allocation& allocation) {
  CHECK(recorder::LiveBlocks(tables_).insert(allocation));
  if (allocation.thread < header().threads.count) ++tables_.threads()[allocation.thread].records;
}

}  // namespace reachscan::tests
