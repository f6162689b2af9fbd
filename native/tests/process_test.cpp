// What the helper reads in /proc about a process, here about this one.
#include "helper/target/process.hpp"

#include <unistd.h>

#include <vector>

#include "check.hpp"

using namespace reachscan;
using namespace reachscan::tests;

CASE(the_first_thread_stands_first) {
  std::vector<pid_t> threads = {310, 4711, 309, 4713};
  helper::sort_threads(threads, 4711);
  CHECK(threads == std::vector<pid_t>({4711, 309, 310, 4713}));
}

CASE(a_process_of_one_thread) {
  CHECK(helper::list_threads(getpid()) == std::vector<pid_t>{getpid()});
}
