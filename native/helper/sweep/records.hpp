// The records that the helper writes itself, before and after those of the sweeper.
#pragma once

#include <string>
#include <vector>

#include "helper/capture/snapshot.hpp"
#include "helper/stream.hpp"
#include "helper/sweep/inject.hpp"

namespace reachscan::helper {

// Describes a process.
struct TargetFacts {
  pid_t pid;
  std::size_t threads;
  std::uint64_t seen;  // when, in nanoseconds since 1970
  std::string name;
  std::string program;
  std::vector<std::string> arguments;
};

// Describes a running process.
TargetFacts facts_of(pid_t pid);
void name_threads(pid_t pid, std::vector<ThreadFacts>& threads);

void send_target(const TargetFacts& target, Stream& stream);

// Describes the machine that this runs on: reports may be made on another one.
void send_host(Stream& stream);

// Reports that the sweeper masks the contents of blocks.
void send_withheld(Stream& stream);

void send_progress(Stream& stream, wire::Phase phase, std::uint64_t done, std::uint64_t total);

// Everything that a scan found out other than the leaks.
struct Outcome {
  std::string method;
  std::string reason;  // why this method was used; empty if it is the usual one
  std::uint32_t attempts;
  Payload mappings;
  Payload modules;
  Payload absent;
  SweepResult result;
};

// Ends the stream.
void send_outcome(const Snapshot& snapshot, const Outcome& outcome, Stream& stream);

}  // namespace reachscan::helper
