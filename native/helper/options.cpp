// Parses the arguments and rejects meaningless combinations.
#include "helper/options.hpp"

#include <getopt.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace reachscan::helper {
namespace {

// Memory bandwidth is the limit, and the target needs some of it, too.
constexpr std::uint32_t kThreadLimit = 8;
constexpr std::uint32_t kMaxProcesses = 1u << 22;  // PID_MAX_LIMIT
constexpr std::uint32_t kMaxDescriptors = 1u << 20;

constexpr char kUsage[] =
    "usage: reachscan-helper [OPTION]... PID > FILE.rsc\n"
    "       reachscan-helper --core FILE [--root DIR] [OPTION]... > FILE.rsc\n"
    "Scans a process, or a core file, and writes what `reachscan report FILE.rsc` reads.\n"
    "\n"
    "  --method auto|clone|copy|track|live   how memory is captured\n"
    "  --max-pause MS                        never stop the process for longer (1000)\n"
    "  --threads N, --nice N                 of the search\n"
    "  --timeout SECONDS                     give up after this time (3600)\n"
    "  --contents BYTES                      of leaked blocks, beyond the 64 that are always kept\n"
    "  --withhold-contents                   keep no contents at all\n"
    "  --python                              look for leaked Python objects, too\n"
    "  --heap | --explain ADDRESS | --refs ADDRESS   ask this instead of what has leaked\n"
    "  --verbose                             say on stderr what each step does\n"
    "\n"
    "For programs: --pid N (as PID, but failures are told in the stream alone), --digests,\n"
    "--lost-before FILE (rows of address, size and digest of what earlier scans found lost),\n"
    "--wake FD (closed when the target runs again), --lifeline FD (give up when it hangs up),\n"
    "--attach SETTING ... | --detach (begin or end to record allocations, instead of a scan).\n"
    "For tests: --list-heap, --die-at-call N, --stall-at-call N, --count-calls.\n"
    "Status: 0 the scan is complete, 1 the last record tells why not, 2 bad arguments.\n";

enum {
  kPid = 256,
  kCore,
  kRoot,
  kAttach,
  kDetach,
  kMethod,
  kThreads,
  kNice,
  kTimeout,
  kMaxPause,
  kContents,
  kWithhold,
  kDigests,
  kLostBefore,
  kPython,
  kHeap,
  kExplain,
  kRefs,
  kListHeap,
  kVerbose,
  kWake,
  kLifeline,
  kHelp,
  kDieAtCall,
  kStallAtCall,
  kCountCalls
};

constexpr option kLongOptions[] = {
    {"pid", required_argument, nullptr, kPid},
    {"core", required_argument, nullptr, kCore},
    {"root", required_argument, nullptr, kRoot},
    {"attach", required_argument, nullptr, kAttach},
    {"detach", no_argument, nullptr, kDetach},
    {"method", required_argument, nullptr, kMethod},
    {"threads", required_argument, nullptr, kThreads},
    {"nice", required_argument, nullptr, kNice},
    {"timeout", required_argument, nullptr, kTimeout},
    {"max-pause", required_argument, nullptr, kMaxPause},
    {"contents", required_argument, nullptr, kContents},
    {"withhold-contents", no_argument, nullptr, kWithhold},
    {"digests", no_argument, nullptr, kDigests},
    {"lost-before", required_argument, nullptr, kLostBefore},
    {"python", no_argument, nullptr, kPython},
    {"heap", no_argument, nullptr, kHeap},
    {"explain", required_argument, nullptr, kExplain},
    {"refs", required_argument, nullptr, kRefs},
    {"list-heap", no_argument, nullptr, kListHeap},
    {"verbose", no_argument, nullptr, kVerbose},
    {"wake", required_argument, nullptr, kWake},
    {"lifeline", required_argument, nullptr, kLifeline},
    {"die-at-call", required_argument, nullptr, kDieAtCall},
    {"stall-at-call", required_argument, nullptr, kStallAtCall},
    {"count-calls", no_argument, nullptr, kCountCalls},
    {"help", no_argument, nullptr, kHelp},
    {nullptr, 0, nullptr, 0},
};

[[noreturn]] void fail_usage(const std::string& what) {
  std::fprintf(stderr, "reachscan-helper: %s; `reachscan-helper --help` tells more\n",
               what.c_str());
  std::exit(2);
}

std::uint32_t number(const char* text, std::uint32_t least, std::uint32_t most) {
  std::uint32_t value = 0;
  auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc{} || *end != 0 || value < least || value > most)
    fail_usage("'" + std::string(text) + "' is no number from " + std::to_string(least) + " to " +
               std::to_string(most));
  return value;
}

pid_t process_id(const char* text) {
  std::uint32_t value = 0;
  auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc{} || *end != 0 || value == 0 || value > kMaxProcesses)
    fail_usage("'" + std::string(text) + "' is no process id");
  return static_cast<pid_t>(value);
}

// Hexadecimal with a prefix of 0x, or decimal.
std::uint64_t address(const char* text) {
  bool is_hex = std::strncmp(text, "0x", 2) == 0;
  const char* digits = is_hex ? text + 2 : text;
  std::uint64_t value = 0;
  auto [end, error] =
      std::from_chars(digits, digits + std::strlen(digits), value, is_hex ? 16 : 10);
  if (error != std::errc{} || *end != 0) fail_usage("'" + std::string(text) + "' is no address");
  return value;
}

std::vector<abi::Suspect> suspects_in(const char* path) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "rb"), std::fclose);
  if (file == nullptr) fail_usage("'" + std::string(path) + "' cannot be read");
  std::vector<abi::Suspect> rows;
  abi::Suspect row{};
  std::size_t bytes = 0;
  while ((bytes = std::fread(&row, 1, sizeof row, file.get())) == sizeof row) rows.push_back(row);
  if (bytes != 0) fail_usage("'" + std::string(path) + "' ends within a row");
  return rows;
}

// Handles options that set the task. Returns false for other options, as do the functions below.
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

// Handles options that limit what is used or sent.
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
      options.wake = static_cast<int>(number(optarg, 0, kMaxDescriptors));
      return true;
    case kLifeline:
      options.lifeline = static_cast<int>(number(optarg, 0, kMaxDescriptors));
      return true;
  }
  return false;
}

// Handles options that name the target or the action.
bool take_target(int option, Options& options) {
  switch (option) {
    case kPid:
      options.pid = process_id(optarg);
      return true;
    case kCore:
      options.core = optarg;
      return true;
    case kRoot:
      options.root = optarg;
      return true;
    case kAttach:
      options.attach += std::string(optarg) + "\n";
      return true;
    case kDetach:
      options.detach = true;
      return true;
  }
  return false;
}

// Handles options for tests.
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

// Handles arguments that are not options: the process, when started by hand.
void take_words(int count, char** words, Options& options) {
  if (count > 1)
    fail_usage("only one process can be scanned, not '" + std::string(words[1]) + "' too");
  if (count == 1) {
    if (options.pid != 0) fail_usage("--pid and a process id mean the same; give one");
    options.pid = process_id(words[0]);
    options.by_hand = true;
  }
  if (options.pid != 0 && !options.core.empty())
    fail_usage("a process and a core file cannot be scanned at once");
  if (options.pid == 0 && options.core.empty())
    fail_usage("nothing to scan was named: give the id of a process");
}

}  // namespace

std::uint32_t default_threads() {
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) return 1;
  return std::min(static_cast<std::uint32_t>(CPU_COUNT(&processors)), kThreadLimit);
}

Options parse_options(int argc, char** argv) {
  Options options;
  for (int option; (option = getopt_long(argc, argv, ":", kLongOptions, nullptr)) != -1;) {
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
      case kLostBefore:
        options.lost_before = suspects_in(optarg);
        break;
      case kPython:
        options.python = true;
        break;
      case kVerbose:
        options.verbose = true;
        break;
      case kHelp:
        std::fputs(kUsage, stdout);
        std::exit(0);
      case ':':
        fail_usage(std::string(argv[optind - 1]) + " needs a value");
      default:
        fail_usage("there is no option " + std::string(argv[optind - 1]));
    }
  }
  take_words(argc - optind, argv + optind, options);
  if (isatty(STDOUT_FILENO))
    fail_usage(
        "the output is binary, not for a terminal: send it to a file, as in `... > scan.rsc`");
  return options;
}

}  // namespace reachscan::helper
