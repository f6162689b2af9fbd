// Parses the arguments, and refuses what makes no sense together.
#include "helper/options.hpp"

#include <getopt.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace reachscan::helper {
namespace {

// Memory is the limit, and the target wants some of it too.
constexpr std::uint32_t kMostThreads = 8;

constexpr char kUsage[] =
    "usage: reachscan-helper --pid N [--method auto|clone|copy|track|live] [--max-pause MS] ...\n"
    "       reachscan-helper --core FILE [--root DIR] ...\n"
    "                        [--threads N] [--nice N] [--timeout SECONDS] [--contents BYTES]\n"
    "                        [--withhold-contents] [--digests] [--verbose] [--wake FD]\n"
    "                        [--heap | --explain ADDRESS | --refs ADDRESS]\n"
    "For tests: [--list-heap] [--die-at-call N] [--stall-at-call N] [--count-calls]\n"
    "Writes the result of one scan to stdout in reachscan's wire format. Status: 0 the scan is\n"
    "complete, 1 the last record tells why not, 2 bad arguments. Closes FD when the target runs\n"
    "again.\n";

enum {
  kPid = 256,
  kCore,
  kRoot,
  kMethod,
  kThreads,
  kNice,
  kTimeout,
  kMaxPause,
  kContents,
  kWithhold,
  kDigests,
  kHeap,
  kExplain,
  kRefs,
  kListHeap,
  kVerbose,
  kWake,
  kHelp,
  kDieAtCall,
  kStallAtCall,
  kCountCalls
};

constexpr option kLongOptions[] = {
    {"pid", required_argument, nullptr, kPid},
    {"core", required_argument, nullptr, kCore},
    {"root", required_argument, nullptr, kRoot},
    {"method", required_argument, nullptr, kMethod},
    {"threads", required_argument, nullptr, kThreads},
    {"nice", required_argument, nullptr, kNice},
    {"timeout", required_argument, nullptr, kTimeout},
    {"max-pause", required_argument, nullptr, kMaxPause},
    {"contents", required_argument, nullptr, kContents},
    {"withhold-contents", no_argument, nullptr, kWithhold},
    {"digests", no_argument, nullptr, kDigests},
    {"heap", no_argument, nullptr, kHeap},
    {"explain", required_argument, nullptr, kExplain},
    {"refs", required_argument, nullptr, kRefs},
    {"list-heap", no_argument, nullptr, kListHeap},
    {"verbose", no_argument, nullptr, kVerbose},
    {"wake", required_argument, nullptr, kWake},
    {"die-at-call", required_argument, nullptr, kDieAtCall},
    {"stall-at-call", required_argument, nullptr, kStallAtCall},
    {"count-calls", no_argument, nullptr, kCountCalls},
    {"help", no_argument, nullptr, kHelp},
    {nullptr, 0, nullptr, 0},
};

[[noreturn]] void fail_usage(const char* what) {
  std::fprintf(stderr, "reachscan-helper: %s\n%s", what, kUsage);
  std::exit(2);
}

std::uint32_t number(const char* text, std::uint32_t least, std::uint32_t most) {
  std::uint32_t value = 0;
  auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc{} || *end != 0 || value < least || value > most)
    fail_usage("a number is out of range");
  return value;
}

// Hexadecimal with 0x before it, or decimal.
std::uint64_t address(const char* text) {
  bool is_hex = std::strncmp(text, "0x", 2) == 0;
  const char* digits = is_hex ? text + 2 : text;
  std::uint64_t value = 0;
  auto [end, error] =
      std::from_chars(digits, digits + std::strlen(digits), value, is_hex ? 16 : 10);
  if (error != std::errc{} || *end != 0) fail_usage("that is no address");
  return value;
}

// What is asked; false if the option is another one. The same for the others below.
bool take_question(int option, Options& options) {
  switch (option) {
    case kHeap:
      options.task = abi::Task::kCountKinds;
      return true;
    case kExplain:
      options.task = abi::Task::kExplain;
      options.query = address(optarg);
      return true;
    case kRefs:
      options.task = abi::Task::kFindReferences;
      options.query = address(optarg);
      return true;
    case kListHeap:
      options.task = abi::Task::kListBlocks;
      return true;
  }
  return false;
}

// How much of anything is used or told.
bool take_limit(int option, Options& options) {
  switch (option) {
    case kThreads:
      options.threads = number(optarg, 1, 256);
      return true;
    case kNice:
      options.nice = number(optarg, 0, 19);
      return true;
    case kTimeout:
      options.timeout = std::chrono::seconds(number(optarg, 1, 1u << 24));
      return true;
    case kMaxPause:
      options.max_pause = std::chrono::milliseconds(number(optarg, 1, 1u << 24));
      return true;
    case kContents:
      options.contents_bytes = number(optarg, 0, 4096);
      return true;
    case kWithhold:
      options.withhold_contents = true;
      return true;
    case kWake:
      options.wake = static_cast<int>(number(optarg, 0, 1u << 20));
      return true;
  }
  return false;
}

// What is looked at.
bool take_target(int option, Options& options) {
  switch (option) {
    case kPid:
      options.pid = static_cast<pid_t>(number(optarg, 1, 1u << 30));
      return true;
    case kCore:
      options.core = optarg;
      return true;
    case kRoot:
      options.root = optarg;
      return true;
  }
  return false;
}

// What tests do to the helper.
bool take_trial(int option, Options& options) {
  switch (option) {
    case kDieAtCall:
      options.die_at_call = number(optarg, 1, 1u << 30);
      return true;
    case kStallAtCall:
      options.stall_at_call = number(optarg, 1, 1u << 30);
      return true;
    case kCountCalls:
      options.count_calls = true;
      return true;
  }
  return false;
}

}  // namespace

std::uint32_t default_threads() {
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) return 1;
  return std::min(static_cast<std::uint32_t>(CPU_COUNT(&processors)), kMostThreads);
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int option; (option = getopt_long(argc, argv, "", kLongOptions, nullptr)) != -1;) {
    if (take_target(option, options) || take_question(option, options) ||
        take_limit(option, options) || take_trial(option, options))
      continue;
    switch (option) {
      case kMethod:
        options.method = optarg;
        break;
      case kDigests:
        options.digests = true;
        break;
      case kVerbose:
        options.verbose = true;
        break;
      case kHelp:
        std::fputs(kUsage, stdout);
        std::exit(0);
      default:
        fail_usage("unknown option");
    }
  }
  if ((options.pid == 0) == options.core.empty() || optind != argc)
    fail_usage("one of --pid and --core is required");
  return options;
}

}  // namespace reachscan::helper
