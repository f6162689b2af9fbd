// reachscan-helper: one scan of one process, its result on stdout in the wire format.
#include <csignal>

#include "helper/failure.hpp"
#include "helper/options.hpp"
#include "helper/scan.hpp"
#include "helper/stream.hpp"

int main(int argc, char** argv) {
  using namespace reachscan::helper;
  Options options = parse_options(argc, argv);
  // wait_for() collects it.
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  // A reader that has gone shows as a failed write, which ends the scan in good order.
  signal(SIGPIPE, SIG_IGN);

  Stream stream(1);
  try {
    stream.hello();
    scan(options, stream);
    return 0;
  } catch (const Failure& failure) {
    if (failure.step != reachscan::wire::Step::kWriteStream) stream.failure(failure);
    return 1;
  }
}
