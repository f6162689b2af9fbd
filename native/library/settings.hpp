// What the environment asks for, and a program by LeakSanitizer's functions, without any call.
#pragma once

#include <cstddef>

#include "library/include/reachscan.h"
#include "library/print.hpp"

namespace reachscan::library {

struct Settings {
  bool at_exit = false;
  int exit_code = 23;  // if there are leaks
  int signal = 0;      // that asks for a scan; 0: none
  bool contents = true;
  char report[4096] = {};  // path, with %p for the process id; empty: stderr
  char method[16] = {};
  reachscan_options options{};
};

// Reads the environment when it is first called.
const Settings& settings();

// Scans as the environment says, and writes the report where it says. Returns the result.
int check_by_settings(Told told);

}  // namespace reachscan::library
