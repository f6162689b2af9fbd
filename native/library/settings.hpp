// What the environment, or a program through LeakSanitizer's functions, requests without any call.
#pragma once

#include <cstddef>

#include "library/include/reachscan.h"
#include "library/print.hpp"

namespace reachscan::library {

struct Settings {
  bool at_exit = false;
  int exit_code = 23;  // if there are leaks
  int signal = 0;      // requests a scan; 0: none
  bool contents = true;
  char report[4096] = {};  // path, with %p for the process id; empty: stderr
  char method[16] = {};
  reachscan_options options{};
};

// Reads the environment on the first call.
const Settings& settings();

// Scans as the environment says, and writes the report there. Returns the result.
int check_by_settings(Told told);

}  // namespace reachscan::library
