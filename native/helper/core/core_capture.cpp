// Maps the memory in a core file at its addresses, fills in what is in files, and notes what is
// missing.
#include "helper/core/core_capture.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "arch/address_space.hpp"
#include "helper/capture/copy_host.hpp"
#include "helper/core/dumped_memory.hpp"
#include "helper/target/memory_kinds.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;

// Shorter runs of zeros do not deserve a mapping of their own in the sweeper's table.
constexpr std::uint64_t kMinAbsentBytes = 64 << 10;
constexpr std::size_t kFilesNamed = 3;

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

// Names a few items of a list in a sentence.
std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kFilesNamed); ++i)
    text += (text.empty() ? "" : ", ") + names[i];
  if (names.size() > kFilesNamed)
    text += " and " + std::to_string(names.size() - kFilesNamed) + " more";
  return text;
}

class CoreCapture {
 public:
  CoreCapture(const CoreFile& core, const CoreMappings& mappings)
      : core_(core),
        mappings_(mappings),
        all_is_readable_(std::all_of(
            core.segments().begin(), core.segments().end(),
            [](const CoreSegment& segment) { return (segment.perms & wire::kRead) != 0; })) {}

  Snapshot run() {
    Clock::time_point began = Clock::now();
    for (const CoreMapping& mapping : mappings_.all) snapshot_.mappings.push_back(mapping.entry);
    snapshot_.clone =
        start_copy_host([this](std::uint64_t page) { return occupied(snapshot_.mappings, page); });
    for (std::size_t i = 0; i < mappings_.all.size(); ++i)
      place(mappings_.all[i], snapshot_.mappings[i]);
    snapshot_.clone->close_files();
    for (const CoreThread& thread : core_.threads()) add_thread(thread);
    describe_missing_memory();
    snapshot_.phases.push_back({"read", Clock::now() - began});
    return std::move(snapshot_);
  }

 private:
  ResidentPages& pages() { return snapshot_.resident_pages; }

  void map(std::uint64_t start, std::uint64_t end, int protection, int flags, int file,
           std::uint64_t offset) {
    if (start >= end) return;
    std::int64_t result = snapshot_.clone->call(
        arch::kMapCall,
        {start, end - start, static_cast<std::uint64_t>(protection),
         static_cast<std::uint64_t>(flags | MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE),
         static_cast<std::uint64_t>(file), offset / arch::kMapUnit});
    if (result >= 0) return;
    int error = static_cast<int>(-result);
    throw Failure(
        wire::Step::kBuildCopy, Code::kNoMemory,
        std::string("the memory of the core file cannot be mapped: ") + std::strerror(error), error,
        0, start);
  }

  // `shown`: the mapping as the snapshot has it.
  void place(const CoreMapping& mapping, MapEntry& shown) {
    const MapEntry& entry = mapping.entry;
    std::uint64_t dumped = entry.start + whole_pages(mapping.bytes);
    bool mapped = mapping.offset % kPage == 0 && mapping.bytes % kPage == 0;
    map(entry.start, entry.end, PROT_READ | PROT_WRITE, MAP_ANONYMOUS, -1, 0);
    // Nothing writes there.
    if (mapped) map(entry.start, dumped, PROT_READ, 0, core_.descriptor(), mapping.offset);
    const Memory* copy = mapped ? nullptr : &snapshot_.clone->memory();
    std::vector<AddressRange> used = DumpedMemory(core_, mapping, copy).read();
    bool own = may_be_protected(entry);
    if (own) pages().protected_.insert(pages().protected_.end(), used.begin(), used.end());
    if (is_readable(entry) && changes(entry)) add_absent({entry.start, dumped}, used);
    if (used.empty() && may_be_reserved(mapping)) shown.perms = 0;
    if (used.empty() && may_be_withheld(mapping)) unseen_ += dumped - entry.start;
    place_rest(mapping, dumped);
  }

  // gdb says that memory without any permission may be read, and fills it with zeros.
  bool may_be_reserved(const CoreMapping& mapping) const {
    const MapEntry& entry = mapping.entry;
    return all_is_readable_ && mapping.bytes != 0 && entry.perms == wire::kRead &&
           entry.backing == Backing::kNothing;
  }

  // Where the processor has protection keys, memory that may only be executed cannot be read, not
  // even by the kernel, which then writes zeros.
  static bool may_be_withheld(const CoreMapping& mapping) {
    const MapEntry& entry = mapping.entry;
    return mapping.perms_known && mapping.bytes != 0 && entry.perms == wire::kExecute &&
           entry.backing == Backing::kNothing;
  }

  void add_absent(const AddressRange& whole, const std::vector<AddressRange>& used) {
    for (const AddressRange& gap : subtract({whole}, used))
      if (gap.end - gap.start >= kMinAbsentBytes) append(pages().absent, gap.start, gap.end);
  }

  // Handles what the dump left out.
  void place_rest(const CoreMapping& mapping, std::uint64_t from) {
    const MapEntry& entry = mapping.entry;
    if (from >= entry.end || is_device(entry)) return;
    if (mapping.original != nullptr) return place_original(mapping, from);
    bool written = (entry.perms & wire::kWrite) != 0 || !mapping.perms_known;
    // The kernel dumps module data that the program has written to.
    if (written && !mapping.of_module) {
      unseen_ += entry.end - from;
      if (!entry.path.empty()) missing_files_.push_back(entry.path);
    }
    if (is_file(entry)) {
      pages().untouchable.push_back({from, entry.end});
    } else if ((entry.perms & wire::kRead) != 0) {
      append(pages().absent, from, entry.end);
    }
  }

  void place_original(const CoreMapping& mapping, std::uint64_t from) {
    const MapEntry& entry = mapping.entry;
    std::uint64_t offset = entry.offset + (from - entry.start);
    std::uint64_t size = whole_pages(mapping.original->size());
    std::uint64_t end = offset < size ? std::min(entry.end, from + (size - offset)) : from;
    if (offset % kPage == 0) map(from, end, PROT_READ, 0, mapping.original->descriptor(), offset);
    // Data files may be written to by every process that maps them.
    if (!mapping.perms_known && !mapping.of_module && from < end)
      pages().protected_.push_back({from, end});
  }

  void add_thread(const CoreThread& thread) {
    RegisterWords& words = snapshot_.words;
    snapshot_.threads.push_back(facts_of(thread.tid, thread.registers));
    // Other threads have names, too, but core files do not contain them.
    if (thread.tid == core_.pid()) snapshot_.threads.back().name = core_.name();
    const auto general = arch::register_words(thread.registers);
    words.values.insert(words.values.end(), general.begin(), general.end());
    words.values.insert(words.values.end(), thread.vector_words.begin(), thread.vector_words.end());
    words.belong_to(thread.tid, thread.vector_words.size());
  }

  void describe_missing_memory() {
    if (unseen_ == 0) return;
    snapshot_.missing_memory =
        std::to_string(unseen_) + " bytes that may hold pointers are not in the core file";
    if (!missing_files_.empty()) snapshot_.missing_memory += " (" + some_of(missing_files_) + ")";
    snapshot_.missing_memory +=
        ": what only they point to is reported as a possible leak, and so are all leaks";
  }

  const CoreFile& core_;
  const CoreMappings& mappings_;
  bool all_is_readable_;  // as the file says
  Snapshot snapshot_;
  std::uint64_t unseen_ = 0;
  std::vector<std::string> missing_files_;
};

}  // namespace

Snapshot capture_core(const CoreFile& core, const CoreMappings& mappings) {
  return CoreCapture(core, mappings).run();
}

}  // namespace reachscan::helper
