// Scans a core file, from its headers to the end of the stream.
#include "helper/core_scan.hpp"

#include <algorithm>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "arch/address_space.hpp"
#include "arch/registers.hpp"
#include "helper/core/core_capture.hpp"
#include "helper/core/imports.hpp"
#include "helper/stop/tracer_thread.hpp"
#include "helper/sweep/records.hpp"
#include "helper/sweep/sweep.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr char kSignalStacks[] = "sigaltstack";
// Functions whose arguments are kept where only the kernel sees them.
const std::set<std::string> kKernelHeldCalls = {
    "epoll_ctl", "timer_create", "io_submit", "io_uring_setup", "sigqueue", "pthread_sigqueue"};

void doubt_for_kernel(const Imports& imports, Snapshot& snapshot) {
  std::string names;
  for (const std::string& name : imports.names)
    if (kKernelHeldCalls.contains(name)) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty())
    snapshot.unread_in_kernel.push_back(
        "a core file does not tell what the program has given to the kernel by " + names);
  if (!imports.complete)
    snapshot.unread_in_kernel.push_back(
        "a module without a table of what it imports may have given pointers to the kernel, and no "
        "core file tells");
}

void warn_of_missing(const CoreMappings& mappings, Stream& stream) {
  const std::vector<std::string>& missing = mappings.missing_modules;
  if (missing.empty()) return;
  std::string more =
      missing.size() > 1 ? " and " + std::to_string(missing.size() - 1) + " more" : "";
  stream.warning("missing-modules",
                 "files of programs or libraries are missing, or are not those that were mapped (" +
                     missing.front() + more +
                     "): names and types from them are unknown; --root DIR names the folder below "
                     "which they lie");
}

// Returns the words of a stack from `at` upwards, fewer at its end. They take less room than
// glibc's thread descriptor at the upper end of a stack, so they do not reach the next mapping.
std::vector<std::uint64_t> words_of_stack(const CoreFile& core, std::uint64_t at) {
  std::vector<std::uint64_t> words(256);
  while (!words.empty() && !core.try_read(at, words.data(), words.size() * sizeof words[0]))
    words.resize(words.size() / 2);
  return words;
}

// gdb abandons a mapping at the first page that it cannot read and writes zeros for the rest. This
// loses the stacks of threads with guard pages in the same mapping. The kernel leaves out whole
// mappings if it is told to.
void require_stacks(const CoreFile& core) {
  for (const CoreThread& thread : core.threads()) {
    std::uint64_t at = arch::stack_pointer(thread.registers) & ~7ull;
    std::vector<std::uint64_t> words = words_of_stack(core, at);
    if (std::any_of(words.begin(), words.end(), [](std::uint64_t w) { return w != 0; })) continue;
    const char* why = words.empty()
                          ? "the kernel leaves it out unless /proc/PID/coredump_filter has bit 0 "
                            "set, as in the usual value 0x33"
                          : "if gdb wrote it, let the kernel do so, as the program may have guard "
                            "pages that stop gdb";
    throw Failure(
        Step::kReadMemory, Code::kBadCore,
        "the stack of thread " + std::to_string(thread.tid) + " is not in the core file; " + why, 0,
        thread.tid, at);
  }
}

bool has_crashed(const CoreFile& core) {
  int signal = core.signal();
  return signal == SIGABRT || signal == SIGSEGV || signal == SIGBUS;
}

TargetFacts facts_of(const CoreFile& core, const CoreMappings& mappings) {
  return {core.pid(),  core.threads().size(), core.written(),
          core.name(), mappings.program,      core.arguments()};
}

void sweep_core(const CoreFile& core, const CoreMappings& mappings, const Options& options,
                Stream& stream) {
  Clock::time_point deadline = Clock::now() + options.timeout;
  Snapshot snapshot = capture_core(core, mappings);
  std::set<std::string> wanted = kKernelHeldCalls;
  wanted.insert(kSignalStacks);
  Imports imports =
      find_imports(snapshot.mappings, snapshot.resident_pages, snapshot.clone->memory(), wanted);
  doubt_for_kernel(imports, snapshot);
  warn_of_missing(mappings, stream);
  bool has_signal_stacks = imports.names.contains(kSignalStacks) || !imports.complete;
  SweepTask task{options.task, has_signal_stacks, true, nullptr, false, core.written()};
  Outcome outcome{"core", "", 1, {}, {}, {}, {}};
  try {
    sweep(snapshot, options, task, stream, outcome, deadline);
  } catch (const Failure& failure) {
    if (failure.code != Code::kLayoutUnknown || !has_crashed(core)) throw;
    throw Failure(failure.step, failure.code,
                  std::string(failure.what()) + ", and the program crashed with signal " +
                      std::to_string(core.signal()) + ", perhaps because it had damaged its heap",
                  failure.error, failure.tid, failure.address);
  }
  if (outcome.result.busy)
    throw Failure(Step::kRunSweeper, Code::kBadCore,
                  "the core file was written while a thread was inside the allocator, whose "
                  "structures contradict each other: " +
                      outcome.result.reason);
  send_outcome(snapshot, outcome, stream);
}

}  // namespace

void scan_core(const Options& options, Stream& stream) {
  CoreFile core(options.core);
  OriginalFiles originals(options.root);
  require_stacks(core);
  CoreMappings mappings = mappings_of(core, originals);
  send_target(facts_of(core, mappings), stream);
  if (options.withhold_contents) send_withheld(stream);
  stream.wake_reader();
  run_as_tracer([&] { sweep_core(core, mappings, options, stream); });
}

}  // namespace reachscan::helper
