// The helper's command line.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

// The number of processors that we may use, but no more than marking benefits from.
std::uint32_t default_threads();

struct Options {
  pid_t pid = 0;
  std::string core;        // a core file to scan instead of a process
  std::string root = "/";  // where to find the files that were mapped
  std::string attach;      // start recording instead of scanning: settings, each ended by a newline
  bool detach = false;     // stop recording
  std::string method = "auto";
  std::uint32_t contents_bytes = 0;
  bool withhold_contents = false;
  std::chrono::seconds timeout{3600};
  std::chrono::milliseconds max_pause{1000};
  abi::Task task = abi::Task::kFindLeaks;
  std::uint64_t query = 0;                    // an address, if the task needs one
  std::vector<abi::Suspect> lost_before;      // found lost by earlier scans, in address order
  bool digests = false;                       // send digests of leaked blocks' contents
  bool python = false;                        // whether to examine Python's own allocator
  std::uint32_t threads = default_threads();  // for marking
  std::uint32_t nice = 0;                     // of the search, in addition to our own
  bool verbose = false;
  int wake = -1;         // a pipe on which the reader waits; stream.hpp
  int lifeline = -1;     // hangs up when the reader has gone; lifeline.hpp
  bool by_hand = false;  // started by a person, who reads stderr
  // For tests of what the target notices; helper/fault_injection.hpp.
  std::uint32_t die_at_call = 0;
  std::uint32_t stall_at_call = 0;
  bool count_calls = false;  // report the number of such calls on stderr
};

// Exits with status 2 and a line on stderr if it cannot parse the arguments.
Options parse_options(int argc, char** argv);

}  // namespace reachscan::helper
