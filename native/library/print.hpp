// Prints reports that the program does not fetch itself: on stderr, or in the file named by
// REACHSCAN_REPORT.
#pragma once

#include "library/include/reachscan.h"

namespace reachscan::library {

// Whether to report a scan that finds no leak.
enum class Told { kAlways, kIfLeaks };

// Scans, and writes the report, or the error, to `fd`. Returns reachscan_check()'s result.
int check_and_print(const reachscan_options& options, bool contents, int fd, Told told);

}  // namespace reachscan::library
