// Every step of a scan has a number and a name. A failure record names the step that failed.
#pragma once

#include <cstdint>
#include <iterator>

namespace reachscan::wire {

enum class Step : std::uint32_t {
  kOpenTarget = 1,
  kReadMappings,
  kSeize,
  kInterrupt,
  kWaitStop,
  kReadRegisters,
  kRepairCalls,
  kDrain,
  kPlaceTrampoline,
  kRunTrampoline,
  kAdoptClone,
  kRelease,
  kPrepareClone,
  kMapSweeper,
  kWriteInputs,
  kRunSweeper,
  kServeRequest,
  kWriteStream,
  kKillClone,
  kReadMemory,
  kBuildCopy,
  kTrackWrites,
  kHoldPause,
};

// In the order of their numbers, starting with 1.
constexpr const char* kStepNames[] = {
    "open-target",    "read-mappings", "seize",         "interrupt",        "wait-stop",
    "read-registers", "repair-calls",  "drain",         "place-trampoline", "run-trampoline",
    "adopt-clone",    "release",       "prepare-clone", "map-sweeper",      "write-inputs",
    "run-sweeper",    "serve-request", "write-stream",  "kill-clone",       "read-memory",
    "build-copy",     "track-writes",  "hold-pause",
};

constexpr const char* step_name(Step step) {
  auto index = static_cast<std::uint32_t>(step) - 1;
  return index < std::size(kStepNames) ? kStepNames[index] : "unknown-step";
}

static_assert(std::size(kStepNames) == static_cast<std::uint32_t>(Step::kHoldPause));

}  // namespace reachscan::wire
