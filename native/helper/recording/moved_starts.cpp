// Moves the first instructions of each function into the recorder's region.
#include "helper/recording/moved_starts.hpp"

#include <algorithm>
#include <string>

#include "arch/address_space.hpp"
#include "arch/imports.hpp"
#include "arch/moved_start.hpp"
#include "helper/recording/free_place.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {

using arch::kPage;
using recorder::Injection;

namespace {

// Keeps a program that maps memory all the time from taking the place first: the kernel hands out
// the highest free place.
constexpr std::uint64_t kClearance = 64 << 20;

// Throws Failure(kRetry) if a function leads to code of no file, as while another recorder is
// there: its jump must not be moved, since what it leads to goes away.
void require_unhooked(const std::vector<TargetFunction>& functions,
                      const std::vector<MapEntry>& entries) {
  for (const TargetFunction& function : functions) {
    std::uint64_t target = arch::jump_target(function.word, function.address);
    bool is_in_file = std::any_of(entries.begin(), entries.end(), [&](const MapEntry& entry) {
      return target >= entry.start && target < entry.end && entry.inode != 0;
    });
    if (target != 0 && !is_in_file)
      throw Failure(wire::Step::kReadMemory, Code::kRetry,
                    std::string(recorder::kHookedFunctions[function.hook].name) +
                        "() has been redirected to code that is in no file");
  }
}

// Returns a place near all functions that are near the first one, free().
std::uint64_t find_place(const std::vector<MapEntry>& entries,
                         const std::vector<TargetFunction>& functions, std::uint64_t bytes) {
  std::uint64_t first = functions[0].address, last = first;
  for (const TargetFunction& function : functions) {
    constexpr std::uint64_t kNear = arch::kJumpReach / 4;
    if (function.address + kNear - functions[0].address >= 2 * kNear) continue;
    first = std::min(first, function.address);
    last = std::max(last, function.address);
  }
  std::uint64_t place = free_place(entries, first, last, bytes + kClearance);
  return place != 0 ? place : free_place(entries, first, last, bytes);
}

}  // namespace

MovedStarts::MovedStarts(pid_t pid, const std::vector<TargetFunction>& functions,
                         const InjectedImage& image, const Memory& memory, Injection& injection)
    : moved_(recorder::kStubPage) {
  std::vector<MapEntry> entries = read_mappings(pid);
  require_unhooked(functions, entries);
  if (!functions.empty()) place_ = find_place(entries, functions, image.region_bytes());
  injection.hook_count = recorder::kHookedCount;
  injection.region = {place_, image.region_bytes()};
  injection.code = {place_ + image.code(), image.data() - image.code()};
  for (const TargetFunction& function : functions) move(function, injection);
  is_unchanged(memory);  // takes half the time when it is done again
}

void MovedStarts::move(const TargetFunction& function, Injection& injection) {
  auto is_same = [&](const Start& start) { return start.address == function.address; };
  auto known = std::find_if(starts_.begin(), starts_.end(), is_same);
  if (known != starts_.end()) {  // an alias
    injection.hooks[function.hook].next = known->moved_to;
    return;
  }
  const char* why = try_move(function, injection);
  if (why != nullptr && obstacle_.empty())
    obstacle_ = std::string(recorder::kHookedFunctions[function.hook].name) +
                "() cannot be redirected: " + why;
}

// Returns null, or why the function cannot be moved.
const char* MovedStarts::try_move(const TargetFunction& function, Injection& injection) {
  std::uint64_t to = moved_start(injection, function.hook);
  std::uint64_t end = place_ + injection.region.bytes;
  std::uint64_t distance = std::max(end, function.address) - std::min(place_, function.address);
  if (place_ == 0 || distance >= arch::kJumpReach) return "there is no free memory near enough";
  if (function.code.size() < arch::start_bytes(function.word)) return "it is too short for a jump";
  if (function.address % kPage > kPage - sizeof function.word)
    return "its first bytes lie on two pages";
  auto code =
      arch::MovedStart::make(function.code.data(), function.code.size(), function.address, to);
  if (!code || code->size() > recorder::kMovedBytes) return "its machine code is not understood";
  std::copy(code->begin(), code->end(), &moved_[function.hook * recorder::kMovedBytes]);
  injection.hooks[function.hook].next = to;
  injection.slots[injection.slot_count++] = {function.address, function.word, function.hook,
                                             recorder::SlotUse::kEntry};
  starts_.push_back({function.address, function.word, to});
  return nullptr;
}

bool MovedStarts::is_unchanged(const Memory& memory) const {
  std::vector<std::uint64_t> addresses, words;
  for (const Start& start : starts_) addresses.push_back(start.address);
  return memory.try_read_words(addresses, words) &&
         std::equal(words.begin(), words.end(), starts_.begin(),
                    [](std::uint64_t word, const Start& start) { return word == start.word; });
}

void MovedStarts::require_untouched(Freeze& freeze, const Memory& memory) {
  static_assert(recorder::kHookedCount <= abi::CodeRanges::kMax);
  abi::CodeRanges overwritten{};
  for (const Start& start : starts_)
    overwritten.add({start.address + 1, start.address + arch::start_bytes(start.word)});
  if (!is_unchanged(memory))
    throw Failure(wire::Step::kReadMemory, Code::kRetry,
                  "the process has changed the code of its allocator meanwhile");
  if (const StoppedThread* thread = search_.find_in_code(freeze, memory, overwritten))
    throw Failure(wire::Step::kDrain, Code::kRetry,
                  "thread " + std::to_string(thread->tid) +
                      " stands where a jump to the recorder would be written",
                  0, thread->tid);
}

void MovedStarts::write_moved_starts(std::vector<unsigned char>& bytes) const {
  std::copy(moved_.begin(), moved_.end(),
            bytes.begin() + (recorder::kStubPages - 1) * recorder::kStubPage);
}

}  // namespace reachscan::helper
