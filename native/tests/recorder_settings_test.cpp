// How the recorder is configured, and the probabilities of its samples.
#include <cmath>

#include "check.hpp"
#include "recorder/sampling.hpp"
#include "recorder/settings.hpp"

namespace reachscan::tests {
namespace {

using namespace recorder;

CASE(all_settings_are_read) {
  Settings settings;
  CHECK(
      read_settings("depth=7\nmin-size=24\nsizes=1-2,100-100\nsample=5\nstop-at=9\nmemory=4096\n"
                    "parent=12\nnotice=/tmp/a b=c\nstacks=1\nway=2\n",
                    settings));
  const Options& options = settings.options;
  CHECK_EQ(options.depth, 7u);
  CHECK_EQ(options.min_size, 24u);
  CHECK_EQ(options.range_count, 2u);
  CHECK(options.ranges[0].first == 1 && options.ranges[0].last == 2);
  CHECK(options.ranges[1].first == 100 && options.ranges[1].last == 100);
  CHECK_EQ(options.sample, 5u);
  CHECK_EQ(options.stop_at, 9u);
  CHECK_EQ(settings.memory, 4096u);
  CHECK_EQ(settings.parent, 12u);
  CHECK_EQ(std::string(settings.notice), "/tmp/a b=c");
  CHECK(options.stacks == Stacks::kFramePointers && options.way_in == WayIn::kAttach);
}

CASE(no_settings_are_the_usual_ones) {
  Settings settings;
  CHECK(read_settings("", settings));
  CHECK_EQ(settings.options.depth, 32u);
  CHECK_EQ(settings.memory, std::uint64_t{64} << 20);
}

CASE(what_is_not_understood_is_refused) {
  for (const char* text : {"depth", "depth=", "depth=x", "depth=1x", "depth=0", "depth=257",
                           "colour=3", "sizes=1", "sizes=1-", "sizes=1-2,", "notice=", "=1",
                           "sizes=1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,"
                           "1-2",
                           "depth=4294967297"}) {
    context = text;
    Settings settings;
    CHECK(!read_settings(text, settings));
  }
}

CASE(logarithms_are_those_of_the_library) {
  for (double x : {1e-16, 1e-9, 0.1, 0.25, 0.5, 0.70710678, 0.9999999, 1.0, 1.5, 3.0, 1e12})
    CHECK(std::fabs(logarithm(x) - std::log(x)) < 1e-8 * (1 + std::fabs(std::log(x))));
}

CASE(samples_are_as_far_apart_as_they_should_be) {
  constexpr std::uint64_t kMean = 512 << 10;
  constexpr int kCount = 400'000;
  std::uint64_t state = 42;
  double sum = 0;
  int beyond = 0;
  for (int i = 0; i < kCount; ++i) {
    auto distance = static_cast<double>(next_sample(state, kMean));
    CHECK(distance >= 1);
    sum += distance;
    beyond += distance > kMean;
  }
  // Five standard deviations.
  CHECK(std::fabs(sum / kCount / kMean - 1) < 5 / std::sqrt(kCount));
  double share = std::exp(-1);
  CHECK(std::fabs(beyond - kCount * share) < 5 * std::sqrt(kCount * share * (1 - share)));
}

}  // namespace
}  // namespace reachscan::tests
