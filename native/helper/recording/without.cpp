// For processors that the recorder does not support yet.
#include "helper/recording/attach.hpp"

namespace reachscan::helper {
namespace {

[[noreturn]] void refuse() {
  throw Failure(wire::Step::kOpenTarget, Code::kUnrecordable,
                "allocations cannot be recorded on this processor yet");
}

}  // namespace

void attach(const Options&, Stream&) { refuse(); }
void detach(const Options&, Stream&) { refuse(); }

}  // namespace reachscan::helper
