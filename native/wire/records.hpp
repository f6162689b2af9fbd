// Every record of the stream and its fields, in order. dump_layout prints this table, and tests
// compare it with LAYOUTS in reachscan/recording/wire.py and with docs/wire-format.md.
//
// A field is a type and a name. `n x` says that what follows is repeated n times, `[n]` that the
// field is a column of n values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace reachscan::wire {

enum RecordType : std::uint32_t {
  kTarget = 1,
  kMappings = 2,
  kModules = 3,
  kThreads = 4,
  kSnapshot = 5,
  kHeap = 6,
  kRegions = 7,
  kLeaks = 8,
  kTypes = 9,
  kProgress = 10,
  kWarning = 11,
  kFailure = 12,
  kFinal = 13,
  kNames = 14,     // added by Python when a stream is saved
  kContents = 15,  // more of a direct leak than its leading words
  kDoubts = 16,    // leaks that are only possible
  kShapes = 17,    // of the leaks in the preceding record
  kDigests = 18,   // of the contents of the leaks in the preceding record
  kKinds = 19,
  kBlock = 20,
  kReferences = 21,
  kChain = 22,         // from a root to the queried block
  kWordOwners = 23,    // threads whose words are roots
  kConfirmation = 24,  // added by Python when it scans repeatedly
  kSightings = 25,     // words in another form that may mean the queried block or one that owns it
  kAbsent = 26,        // memory that was never written
  kWithheld =
      27,  // 1 if words of blocks that are not addresses were replaced by others of their class
  kRecorder = 28,     // set if the target's allocations are being recorded (recorder/tables.hpp)
  kOrigins = 29,      // of the leaks in the preceding records
  kKindOrigins = 30,  // of the kinds in the preceding record
  kStackNodes = 31,   // a return address, and the node of its caller
  kRecordedThreads = 32,
  kClosedModules = 33,  // no longer loaded, but they allocated memory
  kHost = 34,           // the machine that the process ran on
  kInterpreter = 35,    // CPython in a process that is being recorded
  kPythonFunctions = 36,
  kObjects = 37,  // types of Python objects among the leaks in the preceding records, 0 if none
  kPythonTypes = 38,
  kCollectible = 39,  // unreachable Python objects that the collector will free, with their blocks
  kHooks = 40,        // what was hooked for a recorder, or which hooks had to stay
  kRecordedMappings = 41,
  kKindObjects = 42,  // types of Python objects among the kinds in the preceding record, 0 if none
  kMoments = 43,      // added by Python when it joins scans of different moments
};

struct Record {
  RecordType type;
  const char* name;
  std::string_view fields;
};

#define REACHSCAN_REFERENCE "u64 slot, u64 value, u32 holder, u32 index, u64 block, u64 size"

constexpr Record kRecords[] = {
    {kTarget, "Target",
     "u32 pid, u32 threads, u64 started, str name, str exe, u32 n, n x str command"},
    {kMappings, "Mappings",
     "u32 n, n x { u64 start, u64 end, u64 offset, u64 inode, u32 permissions, str path }"},
    {kModules, "Modules", "u32 n, n x { u64 base, str path, raw build_id }"},
    {kThreads, "Threads",
     "u32 n, n x { u32 tid, u64 stack_pointer, u64 program_counter, u64 thread_pointer, str name "
     "}"},
    {kSnapshot, "Snapshot",
     "str method, str reason, u64 pause_ns, u32 attempts, u32 drain_runs, "
     "u32 n, n x { str phase, u64 ns } phases"},
    {kHeap, "Heap", "str allocator, u64 allocations, u64 bytes, u32 arenas, u32 regions"},
    {kRegions, "Regions", "u32 n, n x { u64 start, u64 end, u32 kind, u32 arena }"},
    {kLeaks, "Leaks", "u32 n, u32 w, u64 address[n], u64 size[n], u32 parent[n], u64 words[n*w]"},
    {kTypes, "Types", "u32 n, n x { u64 vtable, str name }"},
    {kProgress, "Progress", "u32 phase, u32 reserved, u64 done, u64 total"},
    {kWarning, "Warning", "str code, str message"},
    {kFailure, "Failure",
     "u32 step, i32 errno, u32 tid, u64 address, str step_name, str code, str sentence"},
    {kFinal, "Final",
     "u64 allocations, u64 bytes, u64 leaked, u64 leaked_bytes, u64 direct, u64 direct_bytes"},
    {kNames, "Names", "u32 n, n x { u64 address, str module, str symbol, u64 offset }"},
    {kContents, "Contents", "u32 n, n x { u32 leak, raw bytes }"},
    {kDoubts, "Doubts", "u32 n, n x { u32 first, u32 count, u32 reason }"},
    {kShapes, "Shapes", "u32 n, u8 shape[n]"},
    {kDigests, "Digests", "u32 n, u64 digest[n]"},
    {kKinds, "Kinds",
     "u32 n, u32 w, u64 count[n], u64 bytes[n], u64 size[n], u64 example[n], u32 arena[n], "
     "u32 shape[n], u64 words[n*w]"},
    {kBlock, "Block", "u64 asked, u64 start, u64 size, u32 state, u32 arena"},
    {kReferences, "References", "u32 n, n x { " REACHSCAN_REFERENCE " }"},
    {kChain, "Chain", "u32 n, n x { " REACHSCAN_REFERENCE " }"},
    {kWordOwners, "WordOwners", "u32 n, n x { u32 first, u32 count, u32 tid }"},
    {kConfirmation, "Confirmation",
     "u64 every_ns, u32 n, n x u64 pauses_ns, u64 vanished, u64 vanished_bytes, u64 recent, "
     "u64 recent_bytes"},
    {kSightings, "Sightings", "u32 n, n x { u32 form, u64 about, " REACHSCAN_REFERENCE " }"},
    {kAbsent, "Absent", "u32 n, n x { u64 start, u64 end }"},
    {kWithheld, "Withheld", "u32 withheld"},
    {kRecorder, "Recorder",
     "u64 start, u64 bytes, u32 way_in, u32 stacks, u32 depth, u32 stopped, u64 stopped_after_ms, "
     "u64 started, u64 now_ms, u64 min_size, u64 sample, u64 stop_at, u32 modules_filtered, "
     "u32 threads_filtered, u64 records, u64 lost, u32 n, n x { u64 first, u64 last } sizes"},
    {kOrigins, "Origins", "u32 n, u32 node[n], u32 thread[n], u64 time_ms[n], u64 requested[n]"},
    {kKindOrigins, "KindOrigins",
     "u32 n, u32 node[n], u32 thread[n], u64 oldest_ms[n], u64 newest_ms[n], u64 requested[n]"},
    {kStackNodes, "StackNodes", "u32 n, u32 node[n], u32 parent[n], u32 module[n], u64 pc[n]"},
    {kRecordedThreads, "RecordedThreads", "u32 n, n x { u32 thread, u32 tid, str name }"},
    {kClosedModules, "ClosedModules",
     "u32 n, n x { u32 module, u64 bias, str path, raw build_id }"},
    {kHost, "Host", "str name, str boot_id"},
    {kInterpreter, "Interpreter", "u32 version, u32 understood"},
    {kPythonFunctions, "PythonFunctions", "u32 n, n x { u32 function, str name, str file }"},
    {kObjects, "Objects", "u32 n, u64 type[n]"},
    {kPythonTypes, "PythonTypes", "u32 n, n x { u64 type, str name }"},
    {kCollectible, "Collectible", "u64 allocations, u64 bytes"},
    {kHooks, "Hooks",
     "u64 pause_ns, u64 thread_pause_ns, u32 slots, u32 modules, u32 others, u64 kept"},
    {kRecordedMappings, "RecordedMappings",
     "u32 n, n x { u64 start, u64 end, u32 kind, u32 node, u32 thread, u64 time_ms }"},
    {kKindObjects, "KindObjects", "u32 n, u64 type[n]"},
    {kMoments, "Moments",
     "u64 every_ns, u32 n, n x u64 pauses_ns, u64 hidden, u64 hidden_bytes, u64 withdrawn, "
     "u64 withdrawn_bytes, u32 rested"},
};

#undef REACHSCAN_REFERENCE

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kRecords); ++i)
    if (kRecords[i].type != i + 1) return false;
  return true;
}
static_assert(in_order(), "a record stands at the place of its number");

void field_has_no_fixed_size();  // no body: a constant expression that gets here does not compile

// The size in bytes of fields that are all numbers.
consteval std::uint64_t bytes_of(std::string_view fields) {
  std::uint64_t bytes = 0;
  while (!fields.empty()) {
    std::string_view type = fields.substr(0, fields.find(' '));
    if (type == "u64")
      bytes += 8;
    else if (type == "u32" || type == "i32")
      bytes += 4;
    else
      field_has_no_fixed_size();
    std::size_t next = fields.find(", ");
    fields.remove_prefix(next == fields.npos ? fields.size() : next + 2);
  }
  return bytes;
}

// The size in bytes of a record before its number of rows.
consteval std::uint64_t head_bytes(RecordType type) {
  std::string_view fields = kRecords[type - 1].fields;
  return bytes_of(fields.substr(0, fields.find(", u32 n, n x ")));
}

// The size in bytes of a record, or of one row if it consists of rows.
consteval std::uint64_t row_bytes(RecordType type) {
  std::string_view fields = kRecords[type - 1].fields;
  std::size_t open = fields.find("{ ");
  if (open == fields.npos) return bytes_of(fields);
  fields.remove_prefix(open + 2);
  return bytes_of(fields.substr(0, fields.find(" }")));
}

}  // namespace reachscan::wire
