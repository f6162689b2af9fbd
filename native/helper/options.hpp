// The helper's command line.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

// The processors we may use, but no more than marking gains from.
std::uint32_t default_threads();

struct Options {
  pid_t pid = 0;
  std::string core;        // a core file, to be scanned instead of a process
  std::string root = "/";  // where the files lie that were mapped then
  std::string attach;      // how to record from now on, instead of scanning
  bool detach = false;     // end that
  std::string method = "auto";
  std::uint32_t contents_bytes = 0;
  bool withhold_contents = false;
  std::chrono::seconds timeout{3600};
  std::chrono::milliseconds max_pause{1000};
  abi::Task task = abi::Task::kFindLeaks;
  std::uint64_t query = 0;                    // an address, if the task is about one
  bool digests = false;                       // of what leaked blocks hold
  bool python = false;                        // whether to look at Python's own allocator
  std::uint32_t threads = default_threads();  // that mark
  std::uint32_t nice = 0;                     // of the search, beyond what we have ourselves
  bool verbose = false;
  int wake = -1;         // a pipe on whose other end the reader waits; stream.hpp
  int lifeline = -1;     // hangs up if the reader has gone; lifeline.hpp
  bool by_hand = false;  // a person started it, and reads stderr
  // For tests of what the target notices; helper/fault_injection.hpp.
  std::uint32_t die_at_call = 0;
  std::uint32_t stall_at_call = 0;
  bool count_calls = false;  // says on stderr how many such calls there were
};

// Exits with status 2 and a line on stderr if the arguments are not understood.
Options parse_options(int argc, char** argv);

}  // namespace reachscan::helper
