// For processors on which the recorder cannot be put into a running process yet.
#include "helper/recording/attach.hpp"

namespace reachscan::helper {
namespace {

[[noreturn]] void refuse() {
  throw Failure(wire::Step::kOpenTarget, Code::kUnrecordable,
                "a process that is already running cannot be recorded on this processor yet");
}

}  // namespace

void attach(const Options&, Stream&) { refuse(); }
void detach(const Options&, Stream&) { refuse(); }

}  // namespace reachscan::helper
