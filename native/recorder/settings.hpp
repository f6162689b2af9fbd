// How to record: one environment variable, with a line for each setting.
#pragma once

#include "recorder/pattern.hpp"
#include "recorder/tables.hpp"

namespace reachscan::recorder {

constexpr char kSettingsVariable[] = "REACHSCAN_RECORDER";

struct Settings {
  Options options{};
  std::uint64_t memory = std::uint64_t{64} << 20;
  Pattern modules;  // whose calls are recorded; not given: all
  Pattern threads;
  std::uint32_t parent = 0;  // the process that waits for the end of its child, 0 if none does
  std::uint32_t signal = 0;  // requests a report; 0: none does
  char notice[128] = {};     // the socket for notifications
};

// Lines are NAME=VALUE, numbers are decimal: way depth stacks min-size sizes (A-B,C-D) sample
// stop-at mmap memory module thread (steps as 1,97,97;0,0,0) parent signal notice. Returns false if
// a line is not understood: another version of reachscan has written it.
bool read_settings(const char* text, Settings& settings);

}  // namespace reachscan::recorder
