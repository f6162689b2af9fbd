// Searches a clone of the target, in which nothing moves.
#include "helper/recording/kept_pointers.hpp"

#include <elf.h>

#include <algorithm>
#include <vector>

#include "arch/mangling.hpp"
#include "arch/thread_descriptor.hpp"
#include "helper/recording/session.hpp"
#include "helper/target/open_files.hpp"
#include "helper/target/resident_pages.hpp"

namespace reachscan::helper {

using recorder::Injection;
using recorder::MappedRange;

namespace {

constexpr std::uint64_t kPieceBytes = 1 << 20;

bool contains(const MappedRange& extent, std::uint64_t address) {
  return address - extent.start < extent.bytes;
}

bool is_own(const Injection& injection, std::uint64_t address) {
  if (contains(injection.region, address)) return true;
  return std::any_of(injection.extents, injection.extents + injection.extent_count,
                     [address](const MappedRange& extent) { return contains(extent, address); });
}

}  // namespace

bool StubPointers::SearchTarget::is_match(std::uint64_t word) const {
  if (contains(stubs, word)) return true;
  return std::any_of(secrets.begin(), secrets.end(), [&](std::uint64_t secret) {
    return contains(stubs, arch::unmangled(word, secret));
  });
}

StubPointers::StubPointers(pid_t pid, const TrampolineSite& site)
    : pid_(pid),
      site_(site),
      random_words_(auxiliary(pid, AT_RANDOM)),
      files_(pid),
      dontfork_(pid, files_),
      descriptors_(read_open_files(pid).served ? Descriptors::kShared : Descriptors::kCopied) {}

StubPointers::~StubPointers() {
  if (made_) Clone(*made_, site_.address);  // ends with this object
}

void StubPointers::capture(Freeze& freeze, const Memory& memory) {
  words_ = freeze.read_register_words();
  for (const StoppedThread& thread : freeze.threads()) {
    std::uint64_t secret = 0;
    std::uint64_t at = arch::kHasPointerGuard
                           ? arch::thread_pointer(thread.registers) + arch::kPointerGuard
                           : random_words_ + sizeof secret;
    bool is_new = memory.try_read(at, &secret, sizeof secret) &&
                  std::find(secrets_.begin(), secrets_.end(), secret) == secrets_.end();
    if (is_new) secrets_.push_back(secret);
  }
  CloneResult made = clone_target(freeze, memory, site_, descriptors_, freeze.deadline(), [] {});
  made_ = made.clone;
  dontfork_.find_lost(made.clone);
  dontfork_.capture(memory);
  leave_trampoline(freeze, memory, site_, made.injected, freeze.deadline());
}

bool StubPointers::exist(const Injection& injection) {
  clone_.emplace(*made_, site_.address);
  made_.reset();
  release_files(*clone_, descriptors_, pid_);
  dontfork_.restore(*clone_);
  SearchTarget sought{pointer_stubs(injection), secrets_};
  if (dontfork_.left_out() != 0 ||
      std::any_of(words_.values.begin(), words_.values.end(),
                  [&](std::uint64_t word) { return sought.is_match(word); }))
    return true;
  for (const MapEntry& entry : files_.mappings_of(clone_->pid()))
    if (!is_own(injection, entry.start) && are_in(sought, entry)) return true;
  return false;
}

bool StubPointers::are_in(const SearchTarget& sought, const MapEntry& entry) const {
  PageMap own(clone_->pid()), target(pid_);
  if (own.descriptor() < 0 || target.descriptor() < 0) return true;
  ResidentPages pages;
  std::vector<AddressRange> written = pages.add(own, target, entry);
  return std::any_of(written.begin(), written.end(), [&](const AddressRange& stretch) {
    return are_in(sought, stretch.start, stretch.end);
  });
}

// Unreadable memory may contain one.
bool StubPointers::are_in(const SearchTarget& sought, std::uint64_t start,
                          std::uint64_t end) const {
  std::vector<std::uint64_t> words(std::min(end - start, kPieceBytes) / sizeof(std::uint64_t));
  for (std::uint64_t at = start; at < end; at += words.size() * sizeof words[0]) {
    words.resize(std::min(end - at, kPieceBytes) / sizeof words[0]);
    if (!clone_->memory().try_read(at, words.data(), words.size() * sizeof words[0])) return true;
    if (std::any_of(words.begin(), words.end(),
                    [&](std::uint64_t word) { return sought.is_match(word); }))
      return true;
  }
  return false;
}

}  // namespace reachscan::helper
