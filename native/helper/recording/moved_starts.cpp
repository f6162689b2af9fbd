// Moves the first instructions of each function into the recorder's region.
#include "helper/recording/moved_starts.hpp"

#include <algorithm>
#include <string>

#include "arch/address_space.hpp"
#include "arch/moved_start.hpp"
#include "helper/recording/free_place.hpp"
#include "helper/recording/presence.hpp"
#include "helper/stop/preconditions.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {

using arch::kPage;
using recorder::Injection;

MovedStarts::MovedStarts(pid_t pid, const StaticProgram& program, const InjectedImage& image,
                         Injection& injection)
    : pid_(pid), moved_(recorder::kStubPage) {
  auto by_address = [](const auto& one, const auto& other) { return one.address < other.address; };
  auto [first, last] =
      std::minmax_element(program.functions.begin(), program.functions.end(), by_address);
  place_ = free_place(read_mappings(pid), first->address, last->address, image.region_bytes());
  if (place_ == 0) refuse("malloc", "there is no free memory near enough");
  injection.is_static = 1;
  injection.hook_count = recorder::kHookedCount;
  injection.program_bias = program.bias;
  injection.unwind_tables = program.unwind_tables;
  injection.region = {place_, image.region_bytes()};
  injection.code = {place_ + image.code(), image.data() - image.code()};
  for (const StaticFunction& function : program.functions) move(function, injection);
}

void MovedStarts::move(const StaticFunction& function, Injection& injection) {
  const char* name = recorder::kHookedFunctions[function.hook].name;
  std::uint64_t to = moved_start(injection, function.hook);
  if (function.code.size() < arch::kStartBytes) refuse(name, "it is too short for a jump");
  if (function.address % kPage > kPage - sizeof function.word)
    refuse(name, "its first bytes lie on two pages");
  auto code =
      arch::MovedStart::make(function.code.data(), function.code.size(), function.address, to);
  if (!code || code->size() > recorder::kMovedBytes)
    refuse(name, "its machine code is not understood");
  std::copy(code->begin(), code->end(), &moved_[function.hook * recorder::kMovedBytes]);
  injection.hooks[function.hook].next = to;
  injection.slots[injection.slot_count++] = {function.address, function.word, function.hook,
                                             recorder::SlotUse::kEntry};
  starts_.push_back(function.address);
}

void MovedStarts::refuse(const char* function, const char* why) const {
  throw Failure(wire::Step::kOpenTarget, Code::kUnrecordable,
                name_of(pid_) + " is linked statically, and its " + function +
                    "() cannot be redirected: " + why,
                0, pid_);
}

void MovedStarts::require_nobody_at_starts(Freeze& freeze, const Memory& memory) const {
  for (std::uint64_t start : starts_)
    if (const StoppedThread* thread =
            find_in_code(freeze, memory, {start + 1, start + arch::kStartBytes}))
      throw Failure(wire::Step::kDrain, Code::kRetry,
                    "thread " + std::to_string(thread->tid) +
                        " stands where a jump to the recorder would be written",
                    0, thread->tid);
}

void MovedStarts::put_moved_starts(std::vector<unsigned char>& bytes) const {
  std::copy(moved_.begin(), moved_.end(),
            bytes.begin() + (recorder::kStubPages - 1) * recorder::kStubPage);
}

}  // namespace reachscan::helper
