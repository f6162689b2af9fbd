// Checks each record of the clone: its form, its order, and the number of each kind.
#include "helper/sweep/sweep_check.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "helper/failure.hpp"
#include "recorder/tables.hpp"

namespace reachscan::helper {
namespace {

constexpr std::uint64_t kMinBlock = 8;              // bytes, including what the allocator adds
constexpr std::uint64_t kReportBytes = 64 << 20;    // scanned between two progress reports
constexpr std::uint64_t kOtherReports = 16;         // where phases start
constexpr std::uint64_t kMaxContentLeaks = 4096;    // leaks sent with their contents
constexpr std::uint64_t kMaxTypes = (1 << 16) + 2;  // names for kinds and for leaks
constexpr std::uint64_t kMaxHeaps = 16;
constexpr std::uint64_t kMaxCalls = 256;  // of functions of the target
constexpr std::uint32_t kMaxTypeLength = 1023;
constexpr std::uint32_t kMaxTextLength = 256;

constexpr std::uint64_t bit(std::uint32_t number) { return number < 64 ? 1ull << number : 0; }

template <typename... Types>
constexpr std::uint64_t set_of(Types... types) {
  return (bit(types) | ... | 0);
}

constexpr std::uint64_t kAboutRecorder =
    set_of(wire::kRecorder, wire::kStackNodes, wire::kRecordedThreads, wire::kClosedModules,
           wire::kInterpreter, wire::kPythonFunctions, wire::kRecordedMappings);
constexpr std::uint64_t kAboutHeap =
    set_of(wire::kHeap, wire::kRegions, wire::kWarning) | kAboutRecorder;
constexpr std::uint64_t kOnce =
    set_of(wire::kBlock, wire::kRecorder, wire::kInterpreter, wire::kCollectible);
constexpr std::uint64_t kAboutLeaks =
    set_of(wire::kLeaks, wire::kShapes, wire::kDigests, wire::kObjects, wire::kOrigins,
           wire::kContents, wire::kTypes, wire::kPythonTypes);
constexpr std::uint64_t kAboutKinds = set_of(wire::kKinds, wire::kKindObjects, wire::kKindOrigins);
// If the block is a leak, it is sent as one.
constexpr std::uint64_t kAboutBlock =
    set_of(wire::kBlock, wire::kSightings, wire::kDoubts, wire::kCollectible) | kAboutKinds |
    kAboutLeaks;

std::uint64_t types_of(abi::Task task) {
  switch (task) {
    case abi::Task::kFindLeaks:
      return kAboutHeap | kAboutLeaks | set_of(wire::kDoubts, wire::kCollectible);
    case abi::Task::kListBlocks:
      return kAboutHeap | kAboutLeaks;
    case abi::Task::kCountKinds:
      return kAboutHeap | kAboutKinds | set_of(wire::kTypes, wire::kPythonTypes);
    case abi::Task::kExplain:
      return kAboutHeap | kAboutBlock | set_of(wire::kChain);
    case abi::Task::kFindReferences:
      return kAboutHeap | kAboutBlock | set_of(wire::kReferences);
    case abi::Task::kListSuspects:
      break;
  }
  return 0;
}

void require(bool holds, const char* what) {
  if (holds) return;
  throw Failure(wire::Step::kServeRequest, Code::kCloneTampered,
                std::string("what the clone of the target sent cannot come from a sweep (") + what +
                    "): something has written to its memory");
}

// Adds rows to the preceding ones.
void count(std::uint64_t& so_far, std::uint64_t more, std::uint64_t most, const char* what) {
  require(so_far <= most && more <= most - so_far, what);
  so_far += more;
}

}  // namespace

SweepBounds bounds_of(abi::Task task, const std::vector<abi::Mapping>& mappings,
                      std::uint64_t register_words) {
  std::uint64_t written = 0, reserved = 0, readable = 0;
  for (const abi::Mapping& m : mappings) {
    std::uint64_t bytes = m.end - m.start;
    if ((m.perms & wire::kRead) != 0) readable += bytes;
    if ((m.flags & abi::kFileBacked) != 0) continue;
    reserved += bytes;
    // No block starts where nothing was ever written.
    if ((m.flags & abi::kAbsent) == 0) written += bytes;
  }
  SweepBounds bounds{};
  bounds.task = task;
  bounds.blocks = written / kMinBlock;
  bounds.heap_bytes = reserved;
  bounds.references = readable / sizeof(std::uint64_t) + register_words;
  bounds.reports = readable / kReportBytes + kOtherReports;
  return bounds;
}

// Reads a record, which must contain what it claims.
class SweepCheck::Payload {
 public:
  Payload(const unsigned char* bytes, std::size_t length) : at_(bytes), left_(length) {}

  template <typename T>
  T take() {
    T value{};
    require(left_ >= sizeof value, "a record is too short");
    std::memcpy(&value, at_, sizeof value);
    skip(sizeof value);
    return value;
  }
  void skip(std::uint64_t length) {
    require(length <= left_, "a record is too short");
    at_ += length;
    left_ -= length;
  }
  std::uint32_t skip_text(std::uint32_t longest) {
    auto length = take<std::uint32_t>();
    require(length <= longest, "a text is too long");
    skip(length);
    return length;
  }
  void finish() const { require(left_ == 0, "a record is too long"); }

 private:
  const unsigned char* at_;
  std::size_t left_;
};

void SweepCheck::frames(const unsigned char* bytes, std::size_t length) {
  while (length > 0) {
    wire::FrameHeader header;
    require(length >= sizeof header, "a record is cut off");
    std::memcpy(&header, bytes, sizeof header);
    bytes += sizeof header;
    length -= sizeof header;
    require(header.length <= length, "a record is cut off");
    record(header.type, {bytes, header.length});
    bytes += header.length;
    length -= header.length;
  }
}

void SweepCheck::record(std::uint32_t type, Payload payload) {
  require_order(type);
  read(type, payload);
  payload.finish();
  seen_ |= bit(type);
  last_ = type;
}

void SweepCheck::require_order(std::uint32_t type) {
  require((types_of(bounds_.task) & bit(type)) != 0, "a record is of no type that it sends");
  bool heaps_only = (seen_ & ~bit(wire::kHeap)) == 0;
  require(type == wire::kHeap ? heaps_only : seen_ != 0, "records are out of order");
  require((seen_ & kOnce & bit(type)) == 0, "a record came twice");
  // Columns follow immediately, and only there.
  bool column = type == wire::kShapes || type == wire::kDigests || type == wire::kObjects ||
                type == wire::kKindObjects;
  require(next_ == 0 ? !column : type == next_, "records are out of order");
  next_ = column_after(type);
  // Origins, if any, directly follow their blocks.
  if (type == wire::kOrigins)
    require(column_after(last_) == 0 &&
                (last_ == wire::kShapes || last_ == wire::kDigests || last_ == wire::kObjects),
            "records are out of order");
  if (type == wire::kKindOrigins)
    require(last_ == (bounds_.python ? wire::kKindObjects : wire::kKinds),
            "records are out of order");
}

// Returns the type that must follow a record of this type; 0 if any may.
std::uint32_t SweepCheck::column_after(std::uint32_t type) const {
  if (type == wire::kLeaks) return wire::kShapes;
  if (type == wire::kShapes && bounds_.digests) return wire::kDigests;
  bool is_last = type == (bounds_.digests ? wire::kDigests : wire::kShapes);
  if (is_last && bounds_.python) return wire::kObjects;
  if (type == wire::kKinds && bounds_.python) return wire::kKindObjects;
  return 0;
}

void SweepCheck::warning(Payload& payload) {
  count(warnings_, 1, heaps_, "a record came twice");
  payload.skip_text(kMaxTextLength);
  payload.skip_text(kMaxTextLength);
}

void SweepCheck::read(std::uint32_t type, Payload& payload) {
  auto rows = [&](std::uint64_t width, std::uint64_t& so_far, std::uint64_t most) {
    auto number = payload.take<std::uint32_t>();
    count(so_far, number, most, "there are more rows than memory for them");
    payload.skip(number * width);
  };
  switch (type) {
    case wire::kHeap:
      return heap(payload);
    case wire::kRegions:
      return rows(wire::row_bytes(wire::kRegions), regions_, stated_regions_);
    case wire::kWarning:
      return warning(payload);
    case wire::kLeaks:
      return leaks(payload);
    case wire::kShapes:
      return column(payload, 1);
    case wire::kDigests:
    case wire::kObjects:
    case wire::kKindObjects:
      return column(payload, 8);
    case wire::kContents:
      return contents(payload);
    case wire::kTypes:
    case wire::kPythonTypes:
      return type_name(payload);
    case wire::kDoubts:
      return doubts(payload);
    case wire::kBlock:
      return payload.skip(wire::row_bytes(wire::kBlock));
    case wire::kReferences:
    case wire::kChain:
      return rows(wire::row_bytes(wire::kReferences), references_, bounds_.references);
    case wire::kSightings:
      return rows(wire::row_bytes(wire::kSightings), references_, bounds_.references);
    case wire::kKinds:
      return kinds(payload);
  }
  recorded(type, payload);
}

void SweepCheck::recorded(std::uint32_t type, Payload& payload) {
  switch (type) {
    case wire::kCollectible:
      return payload.skip(wire::row_bytes(wire::kCollectible));
    case wire::kOrigins:
      return column(payload, 24);
    case wire::kKindOrigins:
      return column(payload, 32);
    case wire::kRecorder:
      return recorder(payload);
    case wire::kStackNodes: {
      auto number = payload.take<std::uint32_t>();
      count(nodes_, number, bounds_.references, "there are more callers than memory for them");
      return payload.skip(20ull * number);
    }
    case wire::kRecordedThreads:
      return recorded_thread(payload);
    case wire::kClosedModules:
      return closed_module(payload);
    case wire::kInterpreter:
      return payload.skip(wire::row_bytes(wire::kInterpreter));
    case wire::kPythonFunctions:
      return python_function(payload);
    case wire::kRecordedMappings: {
      auto number = payload.take<std::uint32_t>();
      count(recorded_mappings_, number, recorder::kMaxMappings, "it sends too many mappings");
      return payload.skip(number * wire::row_bytes(wire::kRecordedMappings));
    }
  }
}

void SweepCheck::recorder(Payload& payload) {
  payload.skip(wire::head_bytes(wire::kRecorder));
  auto ranges = payload.take<std::uint32_t>();
  require(ranges <= recorder::kMaxRanges, "it sends too many ranges of sizes");
  payload.skip(ranges * wire::row_bytes(wire::kRecorder));
}

void SweepCheck::recorded_thread(Payload& payload) {
  require(payload.take<std::uint32_t>() == 1, "a record has not one row");
  count(recorded_threads_, 1, recorder::kMaxThreads, "it names too many threads");
  payload.skip(8);
  payload.skip_text(sizeof recorder::ThreadRow::name);
}

void SweepCheck::python_function(Payload& payload) {
  require(payload.take<std::uint32_t>() == 1, "a record has not one row");
  count(python_functions_, 1, recorder::kMaxFunctions, "it names too many Python functions");
  payload.skip(4);
  payload.skip_text(sizeof recorder::PythonFunction::name);
  payload.skip_text(sizeof recorder::PythonFunction::file);
}

void SweepCheck::closed_module(Payload& payload) {
  require(payload.take<std::uint32_t>() == 1, "a record has not one row");
  count(closed_modules_, 1, 1 << 16, "it names too many modules");
  payload.skip(12);
  payload.skip_text(sizeof recorder::ModuleRow::path);
  payload.skip_text(sizeof recorder::ModuleRow::build_id);
}

void SweepCheck::type_name(Payload& payload) {
  require(payload.take<std::uint32_t>() == 1, "a record has not one row");
  count(types_, 1, kMaxTypes, "it names too many types");
  payload.skip(8);
  payload.skip_text(kMaxTypeLength);
}

void SweepCheck::kinds(Payload& payload) {
  auto number = payload.take<std::uint32_t>();
  batch_ = number;
  require(payload.take<std::uint32_t>() == wire::kLeadWords, "it sends other leading words");
  count(kinds_, number, bounds_.blocks, "there are more kinds than blocks");
  payload.skip(number * (40 + 8ull * wire::kLeadWords));
}

void SweepCheck::heap(Payload& payload) {
  payload.skip_text(kMaxTextLength);
  constexpr const char* kTooLarge = "the heap is larger than the memory";
  count(heaps_, 1, kMaxHeaps, "there are more heaps than allocators");
  count(found_.allocations, payload.take<std::uint64_t>(), bounds_.blocks, kTooLarge);
  count(found_.bytes, payload.take<std::uint64_t>(), bounds_.heap_bytes, kTooLarge);
  payload.skip(4);
  count(stated_regions_, payload.take<std::uint32_t>(), bounds_.blocks, kTooLarge);
}

void SweepCheck::leaks(Payload& payload) {
  batch_ = payload.take<std::uint32_t>();
  require(payload.take<std::uint32_t>() == wire::kLeadWords, "it sends other leading words");
  std::uint64_t before = found_.leaked;
  count(found_.leaked, batch_, found_.allocations, "there are more leaks than blocks");
  payload.skip(8ull * batch_);
  Payload sizes = payload, parents = payload;
  parents.skip(8ull * batch_);
  payload.skip((12 + 8ull * wire::kLeadWords) * batch_);
  for (std::uint64_t position = before; position < found_.leaked; ++position) {
    auto size = sizes.take<std::uint64_t>();
    auto parent = parents.take<std::uint32_t>();
    count(found_.leaked_bytes, size, found_.bytes, "the leaks are larger than the heap");
    require(parent == wire::kDirect || parent < position, "a leak comes before its parent");
    if (parent != wire::kDirect) continue;
    ++found_.direct;
    found_.direct_bytes += size;
  }
}

// A value for each leak, or kind, of the preceding record.
void SweepCheck::column(Payload& payload, std::uint64_t width) const {
  require(payload.take<std::uint32_t>() == batch_, "a column has another length than the leaks");
  payload.skip(width * batch_);
}

void SweepCheck::contents(Payload& payload) {
  require(payload.take<std::uint32_t>() == 1, "a record has not one row");
  count(contents_, 1, kMaxContentLeaks, "it sends the contents of too many leaks");
  require(payload.take<std::uint32_t>() < found_.leaked, "contents are of no leak");
  payload.skip_text(static_cast<std::uint32_t>(bounds_.contents));
}

// The leaks themselves may come later.
void SweepCheck::doubts(Payload& payload) {
  require(payload.take<std::uint32_t>() == 1, "a record has not one row");
  std::uint64_t first = payload.take<std::uint32_t>();
  last_doubt_ = std::max(last_doubt_, first + payload.take<std::uint32_t>());
  auto reason = payload.take<std::uint32_t>();
  require(bit(reason) != 0 && (reasons_ & bit(reason)) == 0, "a reason for doubt came twice");
  reasons_ |= bit(reason);
}

void SweepCheck::phase(std::uint64_t phase) {
  bool known = phase == wire::kEnumerate || phase == wire::kMark || phase == wire::kCollect;
  require(known && phase >= phase_, "its phases are out of order");
  count(reports_, 1, bounds_.reports, "it reports its progress too often");
  phase_ = phase;
}

void SweepCheck::suspects(std::uint64_t count) {
  require(bounds_.task == abi::Task::kListSuspects && !listed_suspects_,
          "nobody asked for its suspects");
  require(count <= bounds_.blocks, "there are more suspects than memory for them");
  listed_suspects_ = true;
}

void SweepCheck::thread(std::uint64_t running, bool in_code) const {
  require(running < bounds_.threads && in_code, "it asks for a thread that it does not need");
}

void SweepCheck::call(bool allowed) {
  require(allowed, "it wants to call a function");
  count(calls_, 1, kMaxCalls, "it wants to call too many functions");
}

void SweepCheck::hint(const abi::QuiesceHint& hint) const {
  require(hint.mutex_count <= abi::QuiesceHint::kMaxMutexes, "it names too many locks");
}

void SweepCheck::finish(const abi::Totals& totals) const {
  if (bounds_.task == abi::Task::kListSuspects) return;
  require(next_ == 0 && (seen_ & bit(wire::kHeap)) != 0 && regions_ == stated_regions_,
          "records are missing");
  require(last_doubt_ <= found_.leaked, "a doubt is about no leak");
  require(std::memcmp(&totals, &found_, sizeof totals) == 0, "its totals do not add up");
}

}  // namespace reachscan::helper
