// Every step of a scan has a number and a name; a failure record names the step it happened in.
#pragma once

#include <cstdint>

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

constexpr const char* step_name(Step step) {
  switch (step) {
    case Step::kOpenTarget:
      return "open-target";
    case Step::kReadMappings:
      return "read-mappings";
    case Step::kSeize:
      return "seize";
    case Step::kInterrupt:
      return "interrupt";
    case Step::kWaitStop:
      return "wait-stop";
    case Step::kReadRegisters:
      return "read-registers";
    case Step::kRepairCalls:
      return "repair-calls";
    case Step::kDrain:
      return "drain";
    case Step::kPlaceTrampoline:
      return "place-trampoline";
    case Step::kRunTrampoline:
      return "run-trampoline";
    case Step::kAdoptClone:
      return "adopt-clone";
    case Step::kRelease:
      return "release";
    case Step::kPrepareClone:
      return "prepare-clone";
    case Step::kMapSweeper:
      return "map-sweeper";
    case Step::kWriteInputs:
      return "write-inputs";
    case Step::kRunSweeper:
      return "run-sweeper";
    case Step::kServeRequest:
      return "serve-request";
    case Step::kWriteStream:
      return "write-stream";
    case Step::kKillClone:
      return "kill-clone";
    case Step::kReadMemory:
      return "read-memory";
    case Step::kBuildCopy:
      return "build-copy";
    case Step::kTrackWrites:
      return "track-writes";
    case Step::kHoldPause:
      return "hold-pause";
  }
  return "unknown-step";
}

}  // namespace reachscan::wire
