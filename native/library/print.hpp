// Shows reports where nobody takes them: on stderr, or in the file that REACHSCAN_REPORT names.
#pragma once

#include "library/include/reachscan.h"

namespace reachscan::library {

// Whether a scan that finds no leak is told of.
enum class Told { kAlways, kIfLeaks };

// Scans, and writes the report, or why there is none, to `fd`. Returns reachscan_check()'s result.
int check_and_print(const reachscan_options& options, bool contents, int fd, Told told);

}  // namespace reachscan::library
