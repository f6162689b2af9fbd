// A regular expression for --module and --thread, compiled by reachscan/capture/patterns.py into
// steps of a machine that tries all alternatives at once, so its time is bounded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reachscan::recorder {

class Pattern {
 public:
  enum Kind : std::uint16_t { kMatch, kRange, kSplit, kBegin, kEnd };

  // kRange: a byte from `first` to `second`. kSplit: continue at both of these steps. kBegin and
  // kEnd: match only there. All except kSplit and kMatch continue at the next step.
  struct Step {
    std::uint16_t kind, first, second;
  };

  static constexpr std::size_t kMaxSteps = 512;

  bool is_given() const { return count_ != 0; }

  // Returns false if there is no room, or the step is invalid.
  bool add(const Step& step) {
    if (count_ == kMaxSteps || step.kind > kEnd) return false;
    steps_[count_++] = step;
    return true;
  }

  // Returns whether some part of the text matches.
  bool matches(const char* text) const {
    Set now, next;
    for (const char* c = text;; ++c) {
      reach(now, 0, c == text, *c == 0);
      if (now.is_matched || *c == 0) return now.is_matched;
      next.clear();
      auto byte = static_cast<unsigned char>(*c);
      for (std::size_t i = 0; i < now.count; ++i) {
        const Step& step = steps_[now.steps[i]];
        if (step.kind == kRange && byte >= step.first && byte <= step.second)
          reach(next, now.steps[i] + 1u, false, c[1] == 0);
      }
      now = next;
    }
  }

 private:
  struct Set {
    void clear() { *this = {}; }

    std::uint64_t has[kMaxSteps / 64] = {};
    std::uint16_t steps[kMaxSteps] = {};
    std::size_t count = 0;
    bool is_matched = false;
  };

  // Adds a step, and those reached from it without another byte.
  void reach(Set& set, std::size_t at, bool is_begin, bool is_end) const {
    std::size_t seen = set.count;
    add_to(set, at);
    for (; seen < set.count; ++seen) {
      std::size_t step_at = set.steps[seen];
      const Step& step = steps_[step_at];
      if (step.kind == kMatch) set.is_matched = true;
      if (step.kind == kSplit) {
        add_to(set, step.first);
        add_to(set, step.second);
      }
      if ((step.kind == kBegin && is_begin) || (step.kind == kEnd && is_end))
        add_to(set, step_at + 1);
    }
  }

  void add_to(Set& set, std::size_t at) const {
    if (at >= count_ || (set.has[at / 64] >> at % 64 & 1) != 0) return;
    set.has[at / 64] |= std::uint64_t{1} << at % 64;
    set.steps[set.count++] = static_cast<std::uint16_t>(at);
  }

  std::size_t count_ = 0;
  Step steps_[kMaxSteps] = {};
};

}  // namespace reachscan::recorder
