// Where blocks were allocated, if a recorder in the target knows: its tables (recorder/tables.hpp)
// record which thread allocated each block, when, and with which stack. If there is no recorder,
// the allocator itself may know the stacks.
//
// The tables are in memory that the target can write to. Their contents may be nonsense, but reads
// stay within their bounds, and a stack that forms a cycle ends.
#pragma once

#include "recorder/tables.hpp"
#include "sweeper/blob/emit.hpp"
#include "sweeper/blocks/backtraces.hpp"
#include "sweeper/roots/guarded.hpp"

namespace reachscan::sweeper {

using heaps::List;
using heaps::Range;
using heaps::Space;

// The origin of one block. If it is not recorded, the other fields mean nothing.
struct Origin {
  uint32_t node = 0;
  uint32_t thread = wire::kNotRecorded;
  uint64_t requested = 0;
  uint64_t time_ms = 0;
};

inline Range range_of(const recorder::Header* tables) {
  auto start = reinterpret_cast<std::uintptr_t>(tables);
  if (tables == nullptr) return {0, 0};
  return {start, heaps::align_up(start + tables->bytes, heaps::kPage)};
}

// Returns all mappings except a range that does not belong to the program's own memory.
inline Space without(const Space& space, Range part) {
  if (part.start == part.end) return space;
  List<abi::Mapping> others(map_memory, static_cast<std::size_t>(space.end() - space.begin()));
  for (abi::Mapping m : space) {
    if (part.contains(m.start)) m.start = m.end < part.end ? m.end : part.end;
    if (m.start < m.end) others.push(m);
  }
  return {others.begin(), others.size()};
}

class Origins {
 public:
  // If `header` is null, nothing is recorded. A process that has inherited tables keeps them up to
  // date, since it has inherited the hooks, too; it may have been made by a call that is not
  // hooked. `backtraces` is null if the allocator is not to be asked.
  Origins(recorder::Header* header, Backtraces* backtraces)
      : tables_(header), backtraces_(backtraces) {
    if (header == nullptr) return;
    used_nodes_ = {map_memory, header->nodes.count};
    used_threads_ = {map_memory, header->threads.count};
    used_modules_ = {map_memory, header->modules.count};
    used_functions_ = {map_memory, header->functions.count};
    recorded_ = true;
  }

  bool present() const { return recorded_ || backtraces_ != nullptr; }

  // Returns what is known about a block of `size` usable bytes. Everything it refers to will be
  // sent.
  Origin of(uint64_t block, uint64_t size) {
    if (!recorded_) return asked(block, size);
    recorder::Allocation found;
    if (!tables_.find(block, found) || found.size > size) return {};
    return {found.node, note(found), found.size, found.time_ms};
  }

  // Sends everything that the origins refer to, and how it was recorded.
  void send() {
    if (backtraces_ != nullptr) backtraces_->send();
    if (!recorded_) return;
    send_header();
    if (tables_.header().options.with_mappings != 0) send_mappings();
    send_nodes();
    used_threads_.each([this](uint64_t index) { send_thread(static_cast<uint32_t>(index)); });
    used_modules_.each([this](uint64_t index) { send_module(static_cast<uint32_t>(index)); });
    used_functions_.each([this](uint64_t index) { send_function(static_cast<uint32_t>(index)); });
  }

 private:
  static constexpr uint32_t kBatch = 8192;

  // Backed only where something is set.
  class Bits {
   public:
    Bits() = default;
    Bits(heaps::MapMemory map, uint64_t count)
        : words_(static_cast<uint64_t*>(map(count / 8 + 8))), count_(count) {}
    uint64_t count() const { return count_; }
    // Returns whether the index is valid and was not set before.
    bool set(uint64_t index) {
      if (index >= count_) return false;
      uint64_t before = words_[index / 64];
      words_[index / 64] |= 1ull << index % 64;
      return words_[index / 64] != before;
    }
    template <typename Visit>
    void each(Visit visit) const {
      for (uint64_t base = 0; base < count_; base += 64)
        for (uint64_t word = words_[base / 64]; word != 0; word &= word - 1)
          visit(base + static_cast<unsigned>(__builtin_ctzll(word)));
    }

   private:
    uint64_t* words_ = nullptr;
    uint64_t count_ = 0;
  };

  // The allocator does not tell by which thread, and when.
  Origin asked(uint64_t block, uint64_t size) {
    uint32_t node = backtraces_ != nullptr ? backtraces_->node_of(block) : 0;
    if (node == 0) return {};
    return {node, 0, size, 0};
  }

  // Has everything that an allocation refers to sent. Returns the row of its thread.
  uint32_t note(const recorder::Allocation& allocation) {
    uint32_t thread = allocation.thread < used_threads_.count() ? allocation.thread : 0;
    used_threads_.set(thread);
    note_stack(allocation.node);
    return thread;
  }

  void note_stack(uint32_t number) {
    bool fresh = true;
    tables_.each_frame(number, [&](uint32_t at, const recorder::Node& node) {
      fresh = fresh && used_nodes_.set(at);
      if (fresh && module_of(node) != 0) used_modules_.set(module_of(node));
      if (fresh && recorder::is_python(node.pc))
        used_functions_.set(recorder::python_function(node.pc));
    });
  }

  // Returns the row of a module that was closed; the mappings show all others.
  uint32_t module_of(const recorder::Node& node) const {
    uint32_t module = recorder::Tables::module_of(node);
    return recorder::Tables::is_closed(node) && module < used_modules_.count() ? module : 0;
  }

  void send_header() const {
    const recorder::Header& h = tables_.header();
    const recorder::Options& options = h.options;
    // The monotonic clock of a finished process means nothing here, so a core file uses calendar
    // times.
    uint64_t written = control()->written_ns;
    uint64_t now = written != 0 ? written : control()->monotonic_ns;
    uint64_t began = written != 0 ? h.started_realtime_ns : h.started_monotonic_ns;
    Record record(wire::kRecorder);
    record.u64(reinterpret_cast<std::uintptr_t>(&h)).u64(h.bytes);
    record.u32(static_cast<uint32_t>(options.way_in)).u32(static_cast<uint32_t>(options.stacks));
    record.u32(options.depth).u32(h.stopped).u64(h.stopped_after_ms).u64(h.started_realtime_ns);
    record.u64(now > began ? (now - began) / 1'000'000 : 0);
    record.u64(options.min_size).u64(options.sample).u64(options.stop_at);
    record.u32(options.modules_filtered).u32(options.threads_filtered);
    uint32_t ranges = options.range_count <= recorder::kMaxRanges ? options.range_count : 0;
    record.u64(tables_.record_count()).u64(h.lost).u32(ranges);
    record.raw(options.ranges, ranges * sizeof options.ranges[0]).send();
    if (h.python == 0) return;
    Record interpreter(wire::kInterpreter);
    interpreter.u32(h.python & 0xffff).u32((h.python & recorder::kPythonUnderstood) != 0).send();
  }

  // The last record may be empty: it shows that mappings were recorded.
  void send_mappings() {
    List<recorder::MappingRow> batch(map_memory, kBatch);
    tables_.each_mapping([&](const recorder::MappingRow& row) {
      // If the thread's creation was not seen, only its end is known.
      if (recorder::unpack(row).node == 0) return;
      batch.push(row);
      if (batch.size() == kBatch) send_batch(batch);
    });
    send_batch(batch);
  }

  void send_batch(List<recorder::MappingRow>& batch) {
    Record record(wire::kRecordedMappings);
    record.u32(static_cast<uint32_t>(batch.size()));
    for (const recorder::MappingRow& row : batch) {
      recorder::Allocation by = recorder::unpack(row);
      record.u64(row.start).u64(row.end).u32(row.kind);
      record.u32(by.node).u32(note(by)).u64(by.time_ms);
    }
    record.send();
    batch.clear();
  }

  void send_nodes() const {
    List<uint32_t> batch(map_memory, kBatch);
    used_nodes_.each([&](uint64_t number) {
      batch.push(static_cast<uint32_t>(number));
      if (batch.size() == kBatch) send_batch(batch);
    });
    if (!batch.empty()) send_batch(batch);
  }

  void send_batch(List<uint32_t>& batch) const {
    Record record(wire::kStackNodes);
    record.u32(static_cast<uint32_t>(batch.size())).raw(batch.begin(), batch.size() * 4);
    const recorder::Node* nodes = tables_.nodes();
    for (uint32_t number : batch) record.u32(static_cast<uint32_t>(nodes[number].parent));
    for (uint32_t number : batch) record.u32(module_of(nodes[number]));
    for (uint32_t number : batch) record.u64(nodes[number].pc);
    record.send();
    batch.clear();
  }

  void send_thread(uint32_t index) const {
    const recorder::ThreadRow& row = tables_.threads()[index];
    Record record(wire::kRecordedThreads);
    record.u32(1).u32(index).u32(row.tid);
    text(record, row.name, sizeof row.name).send();
  }

  void send_module(uint32_t index) const {
    const recorder::ModuleRow& row = tables_.modules()[index];
    Record record(wire::kClosedModules);
    record.u32(1).u32(index).u64(row.bias);
    text(record, row.path, sizeof row.path);
    uint32_t length = row.build_id_bytes;
    if (length > sizeof row.build_id) length = 0;
    record.u32(length).raw(row.build_id, length).send();
  }

  void send_function(uint32_t index) const {
    const recorder::PythonFunction& row = tables_.functions()[index];
    if (__atomic_load_n(&row.ready, __ATOMIC_ACQUIRE) != 1) return;
    Record record(wire::kPythonFunctions);
    record.u32(1).u32(index);
    text(record, row.name, sizeof row.name);
    text(record, row.file, sizeof row.file).send();
  }

  static Record& text(Record& record, const char* bytes, std::size_t most) {
    std::size_t length = 0;
    while (length < most && bytes[length] != 0) ++length;
    return record.u32(static_cast<uint32_t>(length)).raw(bytes, length);
  }

  recorder::Tables tables_;
  Backtraces* backtraces_;
  bool recorded_ = false;
  Bits used_nodes_, used_threads_, used_modules_, used_functions_;
};

}  // namespace reachscan::sweeper
