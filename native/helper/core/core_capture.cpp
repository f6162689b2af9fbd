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
#include "helper/target/memory_kinds.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;

constexpr std::uint64_t kBufferBytes = 1 << 20;
// Shorter runs of zeros do not deserve a mapping of their own in the sweeper's table.
constexpr std::uint64_t kMinAbsentBytes = 64 << 10;
constexpr std::size_t kFilesNamed = 3;

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

bool is_zero(const char* page) {
  static const std::vector<char> zeros(kPage);
  return std::memcmp(page, zeros.data(), kPage) == 0;
}

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
      : core_(core), mappings_(mappings), buffer_(kBufferBytes), other_(kBufferBytes) {}

  Snapshot run() {
    Clock::time_point began = Clock::now();
    for (const CoreMapping& mapping : mappings_.all) snapshot_.mappings.push_back(mapping.entry);
    snapshot_.clone =
        start_copy_host([this](std::uint64_t page) { return occupied(snapshot_.mappings, page); });
    for (const CoreMapping& mapping : mappings_.all) place(mapping);
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
        SYS_mmap, {start, end - start, static_cast<std::uint64_t>(protection),
                   static_cast<std::uint64_t>(flags | MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE),
                   static_cast<std::uint64_t>(file), offset});
    if (result >= 0) return;
    int error = static_cast<int>(-result);
    throw Failure(
        wire::Step::kBuildCopy, Code::kNoMemory,
        std::string("the memory of the core file cannot be mapped: ") + std::strerror(error), error,
        0, start);
  }

  void place(const CoreMapping& mapping) {
    const MapEntry& entry = mapping.entry;
    std::uint64_t dumped = entry.start + whole_pages(mapping.bytes);
    bool mapped = mapping.offset % kPage == 0 && mapping.bytes % kPage == 0;
    map(entry.start, entry.end, PROT_READ | PROT_WRITE, MAP_ANONYMOUS, -1, 0);
    // Nothing writes there.
    if (mapped) map(entry.start, dumped, PROT_READ, 0, core_.descriptor(), mapping.offset);
    std::vector<AddressRange> used = read_dumped(mapping, !mapped);
    bool own = may_be_protected(entry);
    if (own) pages().protected_.insert(pages().protected_.end(), used.begin(), used.end());
    if (is_readable(entry) && changes(entry)) add_absent({entry.start, dumped}, used);
    place_rest(mapping, dumped);
  }

  // Returns where it contains data: anything but zeros or, for a file, anything different from the
  // file.
  std::vector<AddressRange> read_dumped(const CoreMapping& mapping, bool copies) {
    std::vector<AddressRange> used;
    for (std::uint64_t done = 0; done < mapping.bytes;) {
      off_t data = lseek(core_.descriptor(), static_cast<off_t>(mapping.offset + done), SEEK_DATA);
      if (data < 0) break;  // zeros up to its end
      std::uint64_t skipped = static_cast<std::uint64_t>(data) - mapping.offset;
      done = std::max(done, skipped & ~(kPage - 1));
      if (done >= mapping.bytes) break;
      std::uint64_t length = std::min(kBufferBytes, mapping.bytes - done);
      std::memset(buffer_.data() + length, 0, whole_pages(length) - length);
      core_.read_file(mapping.offset + done, buffer_.data(), length);
      take_pages(mapping, done, whole_pages(length), copies, used);
      done += length;
    }
    return used;
  }

  void take_pages(const CoreMapping& mapping, std::uint64_t done, std::uint64_t length, bool copies,
                  std::vector<AddressRange>& used) {
    std::vector<AddressRange> runs;
    for (std::uint64_t at = 0; at < length; at += kPage)
      if (!is_zero(buffer_.data() + at)) append(runs, at, at + kPage);
    std::uint64_t start = mapping.entry.start + done;
    for (const AddressRange& run : runs) {
      if (copies)
        snapshot_.clone->memory().write(wire::Step::kBuildCopy, start + run.start,
                                        buffer_.data() + run.start, run.end - run.start);
      for (std::uint64_t at = run.start; at < run.end; at += kPage)
        if (!is_original(mapping, done + at, buffer_.data() + at))
          append(used, start + at, start + at + kPage);
    }
  }

  // Compares only what the program may have protected.
  bool is_original(const CoreMapping& mapping, std::uint64_t at, const char* page) {
    if (mapping.original == nullptr || (mapping.entry.perms & wire::kWrite) != 0) return false;
    return mapping.original->try_read(mapping.entry.offset + at, other_.data(), kPage) &&
           std::memcmp(page, other_.data(), kPage) == 0;
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
    const auto* general = reinterpret_cast<const std::uint64_t*>(&thread.registers);
    words.values.insert(words.values.end(), general,
                        general + sizeof thread.registers / sizeof *general);
    words.values.insert(words.values.end(), thread.vector_words.begin(), thread.vector_words.end());
    words.belong_to(thread.tid, thread.vector_words.size());
  }

  void describe_missing_memory() {
    if (unseen_ == 0) return;
    snapshot_.missing_memory =
        std::to_string(unseen_) + " bytes of writable memory are not in the core file";
    if (!missing_files_.empty()) snapshot_.missing_memory += " (" + some_of(missing_files_) + ")";
    snapshot_.missing_memory +=
        ": what only they point to is reported as a possible leak, and so are all leaks";
  }

  const CoreFile& core_;
  const CoreMappings& mappings_;
  std::vector<char> buffer_;
  std::vector<char> other_;
  Snapshot snapshot_;
  std::uint64_t unseen_ = 0;
  std::vector<std::string> missing_files_;
};

}  // namespace

Snapshot capture_core(const CoreFile& core, const CoreMappings& mappings) {
  return CoreCapture(core, mappings).run();
}

}  // namespace reachscan::helper
