// reachscan-helper: scans one process, or starts or stops recording it. The result goes to stdout
// in the wire format.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <optional>

#include "helper/core_scan.hpp"
#include "helper/failure.hpp"
#include "helper/fault_injection.hpp"
#include "helper/lifeline.hpp"
#include "helper/options.hpp"
#include "helper/recording/attach.hpp"
#include "helper/scan.hpp"
#include "helper/stop/preconditions.hpp"
#include "helper/stream.hpp"
#include "helper/target/memory_limits.hpp"

namespace {

void perform(const reachscan::helper::Options& options, reachscan::helper::Stream& stream) {
  using namespace reachscan::helper;
  if (!options.core.empty()) {
    scan_core(options, stream);
  } else if (!options.attach.empty()) {
    attach(options, stream);
  } else if (options.detach) {
    detach(options, stream);
  } else {
    scan(options, stream);
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace reachscan::helper;
  Options options = parse_options(argc, argv);
  // Started through a file descriptor, it would be listed under a number.
  prctl(PR_SET_NAME, "reachscan-helper");
  // wait_for() collects SIGCHLD.
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  // A reader that has gone shows up as a failed write, which ends the scan in an orderly way.
  signal(SIGPIPE, SIG_IGN);

  prefer_as_oom_victim(getpid());
  die_before_call(options.die_at_call);
  stall_before_call(options.stall_at_call);

  Stream stream(1, options.wake);
  int status = 0;
  try {
    std::optional<Lifeline> lifeline;
    if (options.lifeline >= 0) lifeline.emplace(options.lifeline, stream);
    stream.hello(options.core.empty() && has_short_words(options.pid));
    perform(options, stream);
  } catch (const Failure& failure) {
    if (options.by_hand) std::fprintf(stderr, "reachscan-helper: %s\n", failure.what());
    if (failure.step != reachscan::wire::Step::kWriteStream) stream.failure(failure);
    status = 1;
  } catch (const std::exception& error) {
    stream.failure(Failure(reachscan::wire::Step::kOpenTarget, Code::kInternal, error.what()));
    status = 1;
  }
  if (options.count_calls)
    std::fprintf(stderr, "calls %llu\n", static_cast<unsigned long long>(calls_made()));
  return status;
}
