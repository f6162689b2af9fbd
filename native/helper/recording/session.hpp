// What attach and detach have in common: how they find a recorder, and how they stop the target.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "helper/capture/middleman.hpp"
#include "helper/capture/trampoline.hpp"
#include "helper/options.hpp"
#include "helper/stop/pause_limit.hpp"
#include "helper/stream.hpp"
#include "recorder/injection.hpp"
#include "recorder/tables.hpp"

namespace reachscan::helper {

struct RecordingSession {
  const Options& options;
  const Memory& memory;
  PauseLimit& limit;
  Clock::time_point deadline;
  TrampolineSite site;

  pid_t pid() const { return options.pid; }
};

// What the kernel says of a process under AT_...; 0 if nothing.
std::uint64_t auxiliary(pid_t pid, std::uint64_t type);

// What of recorders lies in a process.
struct Found {
  std::uint64_t injection = 0;                // where it is; 0 if there is none
  std::optional<recorder::WayIn> way_in;      // of the tables, if there are any
  std::vector<recorder::MappedRange> tables;  // of injected recorders, with the pages around them
};

Found find_recorder(pid_t pid, const Memory& memory);

std::unique_ptr<recorder::Injection> read_injection(const Memory& memory, std::uint64_t address);

// What the word holds while it is hooked.
std::uint64_t hooked_word(const recorder::Injection& injection, const recorder::Slot& slot);

// What is done to a target around and in a pause, on one thread.
struct PauseSteps {
  std::function<void()> before = [] {};
  std::function<void(Freeze&)> stopped;
  std::function<void()> after = [] {};
};

// Does these steps, again and again while that fails with what passes. Returns how long the target
// stood still the last time.
std::chrono::nanoseconds stop_target(const RecordingSession& session, const PauseSteps& steps);

// Has a middleman do use(middleman) in the stopped target. It must not throw.
void employ_middleman(const RecordingSession& session, Freeze& freeze,
                      const std::function<void(Middleman&)>& use);

struct Removal {
  std::chrono::nanoseconds pause{};  // the longest
  std::uint64_t kept = 0;            // bytes that have to stay
};

// Restores all that was hooked, and removes the recorder as far as that is safe. Throws
// Failure(kDrain) if threads do not leave it; nothing is hooked then.
Removal remove_recorder(const RecordingSession& session, std::uint64_t injection);

}  // namespace reachscan::helper
