// Frames of CPython 3.9 and 3.10, as generators and tracebacks hold them. Two sorts of their words
// hold nothing: the one for the generator that a frame is of, which itself holds the frame, and
// those left of values that the frame computed with.
#pragma once

#include "memory/space.hpp"

namespace reachscan::sweeper {

using heaps::Range;

// Later frames are less than half as large.
constexpr uint64_t kFrameBytes39 = 368, kFrameBytes310 = 360;

struct OldFrame {
  uint64_t generator;  // the address of that word
  Range left;          // the others
};

// Returns nothing for a frame that is running: it does not say which values it needs.
inline OldFrame read_old_frame(uint64_t frame, uint64_t basic_size, uint64_t end) {
  // f_valuestack; in 3.9 f_stacktop, f_gen and f_executing, in 3.10 f_stackdepth, f_gen and f_state
  constexpr uint64_t kStack = 64, kTop39 = 72, kGenerator39 = 96, kRuns39 = 116;
  constexpr uint64_t kDepth310 = 80, kGenerator310 = 88, kState310 = 108;
  constexpr int32_t kExecuting = 0, kUnwinding = 2;
  bool is_39 = basic_size == kFrameBytes39;
  uint64_t stack = heaps::word(frame + kStack), top = stack;
  if (is_39) {
    if (heaps::load<uint8_t>(frame + kRuns39) != 0) return {};
    if (uint64_t written = heaps::word(frame + kTop39); written != 0) top = written;
  } else {
    auto state = heaps::load<int32_t>(frame + kState310);
    if (state == kExecuting || state == kUnwinding) return {};
    auto depth = heaps::load<int32_t>(frame + kDepth310);
    if (depth > 0) top = stack + heaps::kWord * static_cast<uint64_t>(depth);
  }
  bool fits = stack >= frame + basic_size - heaps::kWord && top >= stack && top <= end;
  if (!fits || top % heaps::kWord != 0) return {};
  return {frame + (is_39 ? kGenerator39 : kGenerator310), {top, end}};
}

}  // namespace reachscan::sweeper
