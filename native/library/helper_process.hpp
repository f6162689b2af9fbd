// Starts the helper on the own process so that the program does not notice: no child of its own, no
// SIGCHLD, no heap memory, no descriptor that outlives the scan.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "library/include/reachscan.h"

namespace reachscan::library {

class HelperProcess {
 public:
  HelperProcess() = default;
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;
  ~HelperProcess();

  // Returns false if it cannot be started; `error` then says why. `more` are words of its command
  // line, up to a null, that request something other than a scan.
  bool start(const reachscan_options& options, char* error, std::size_t size,
             const char* const* more = nullptr);

  // Reads exactly this many bytes of its stream. Returns false at its end.
  bool read(void* bytes, std::size_t count);

  // The errno that kept it from running; 0 if it ran.
  int exec_error() const;

 private:
  struct Start;
  static int become_helper(void* start);
  static int start_helper(void* start);
  static bool run_starter(Start& start);

  void allow_to_trace();
  void wait_for_end() const;

  Start* start_ = nullptr;
  int stream_ = -1;
  int end_ = -1;  // readable when the helper has ended; -1 if the kernel does not support it
  pid_t pid_ = 0;
  int dumpable_ = 1;
};

}  // namespace reachscan::library
