// What attach and detach share: how they find a recorder, and how they stop the target.
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

// Returns an entry of a process's auxiliary vector (AT_...); 0 if there is none.
std::uint64_t auxiliary(pid_t pid, std::uint64_t type);

// The parts of recorders found in a process.
struct Found {
  std::uint64_t injection = 0;                // its address; 0 if there is none
  bool has_several = false;                   // there are more of them
  std::optional<recorder::WayIn> way_in;      // from the tables, if there are any
  std::vector<recorder::MappedRange> tables;  // of injected recorders, with their guard pages
};

Found find_recorder(pid_t pid, const Memory& memory);

// Returns the tables of a recorder that failed, or was killed, before it could record where they
// are.
std::vector<recorder::MappedRange> find_lost_tables(pid_t pid, const Memory& memory,
                                                    const recorder::Injection& injection);

std::unique_ptr<recorder::Injection> read_injection(const Memory& memory, std::uint64_t address);
// The same where it was read before, by a single call unless there are more slots now. Returns
// false if it is not there any more.
bool read_again(const Memory& memory, std::uint64_t address, recorder::Injection& injection);

// Unmaps what the recorder has mapped, and returns how many bytes stay. An unmapped extent may be
// reused for something else: none is unmapped twice, or read again, whenever we are killed.
std::uint64_t unmap_extents(const RecordingSession& session, Middleman& middleman,
                            std::uint64_t address, const recorder::Injection& injection);

// Returns the value of the word while it is hooked.
std::uint64_t hooked_word(const recorder::Injection& injection, const recorder::Slot& slot);

// How many bytes of it are replaced.
std::size_t hooked_bytes(const recorder::Slot& slot);

// Returns the two pages of stubs, which lead to this address of each hook.
std::vector<unsigned char> stub_pages(const recorder::Injection& injection,
                                      std::uint64_t recorder::Hook::*target);

// What is done to a target before, during and after a pause, on one thread.
struct PauseSteps {
  std::function<void()> before = [] {};
  std::function<void(Freeze&)> stopped;
  std::function<void()> after = [] {};
  std::function<void()> give_up = [] {};  // if stopping it, or what is done then, fails
};

// Runs these steps, and repeats them while they fail for transient reasons. Returns how long the
// target was stopped the last time.
std::chrono::nanoseconds stop_target(const RecordingSession& session, const PauseSteps& steps);

// Calls use(middleman) in the stopped target. `use` must not throw.
void use_middleman(const RecordingSession& session, Freeze& freeze,
                   const std::function<void(Middleman&)>& use);

// The longest stops.
struct Pauses {
  std::chrono::nanoseconds of_all;  // all threads at once
  std::chrono::nanoseconds of_one;  // a single thread; 0 if there was none
};

struct Removal {
  Pauses pauses{};
  std::uint64_t kept = 0;  // bytes that have to stay
};

// kAbandoned: only one that hooks nothing, as a killed attach leaves behind.
enum class Removable { kAny, kAbandoned };

// Restores everything that was hooked, and removes the recorder as far as is safe. Throws
// Failure(kDrain) if threads do not leave it; nothing is hooked any more then.
Removal remove_recorder(const RecordingSession& session, std::uint64_t injection,
                        Removable removable);

// Reports what was done. `injection` is null if nothing is hooked any more, `kept` are bytes that
// had to stay.
void send_hooks(const Pauses& pauses, const recorder::Injection* injection, std::uint64_t kept,
                Stream& stream);

}  // namespace reachscan::helper
