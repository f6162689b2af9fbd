// Estimates the pause from page tables and threads, using costs measured on this machine.
#include "helper/capture/expected_pause.hpp"

#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "arch/address_space.hpp"
#include "helper/stop/realtime_priority.hpp"
#include "helper/target/process.hpp"
#include "helper/target/text.hpp"

namespace reachscan::helper {
namespace {

const auto kSmallPage = static_cast<double>(arch::kPage);
const auto kHugePage = static_cast<double>(arch::kHugePage);
// The part that does not depend on the process: switches between the target and us.
constexpr double kAlways = 500'000;
// From docs/performance.md; slower machines take several times as long.
constexpr PauseCosts kUsual = {12'000, 63, 1000, 0.11, 0.001};
constexpr double kSlowest = 4;
constexpr std::size_t kSample = 8 << 20;
constexpr int kTrials = 5;

double number_in(std::string_view field) {
  return static_cast<double>(number_at_start<std::uint64_t>(take_word(field)).value_or(0));
}

double bytes_in(std::string_view field) {  // "2096 kB"
  return number_in(field) * 1024;
}

double status_bytes(pid_t pid, const char* field) {
  return bytes_in(status_field(pid, pid, field));
}

PauseWork work_of(pid_t pid) {
  return {number_in(status_field(pid, pid, "Threads")),
          status_bytes(pid, "RssAnon") + status_bytes(pid, "VmSwap"), 0,
          status_bytes(pid, "RssShmem")};
}

// Reading this makes the kernel walk all page tables.
double huge_bytes_of(pid_t pid) {
  constexpr char kKey[] = "AnonHugePages:";
  std::string text = try_read_proc_file(pid, "smaps_rollup");
  std::size_t at = text.find(kKey);
  return at == std::string::npos ? 0
                                 : bytes_in(std::string_view(text).substr(at + sizeof kKey - 1));
}

template <typename Work>
double shortest(Work work) {
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < kTrials; ++i) {
    Clock::time_point begin = Clock::now();
    work();
    best = std::min<std::chrono::nanoseconds>(best, Clock::now() - begin);
  }
  return static_cast<double>(best.count());
}

void fork_once() {
  pid_t child = fork();
  if (child == 0) _exit(0);
  if (child > 0) waitpid(child, nullptr, 0);
}

// Measures the two largest costs on this machine, with our own memory and at a pause's priority.
PauseCosts measured_costs() {
  RealtimePriority urgency;
  PauseCosts costs = kUsual;
  auto map = [] {
    return mmap(nullptr, kSample, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  double without = shortest(fork_once);
  void* from = map();
  if (from == MAP_FAILED) return costs;
  madvise(from, kSample, MADV_NOHUGEPAGE);
  std::memset(from, 1, kSample);
  double pages = static_cast<double>(kSample) / kSmallPage;
  costs.small_page = std::max(shortest(fork_once) - without, 0.0) / pages;
  double reading = shortest([&] {
    void* to = map();
    if (to == MAP_FAILED) return;
    madvise(to, kSample, MADV_NOHUGEPAGE);
    iovec local{to, kSample}, remote{from, kSample};
    [[maybe_unused]] ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    munmap(to, kSample);
  });
  costs.byte_read = reading / static_cast<double>(kSample);
  munmap(from, kSample);
  return costs;
}

std::string milliseconds(std::chrono::nanoseconds time) {
  return std::to_string((time.count() + 999'999) / 1'000'000) + " ms";
}

}  // namespace

std::chrono::nanoseconds expected_pause(Method method, const PauseWork& work,
                                        const PauseCosts& costs) {
  double small_pages = (work.bytes - work.huge_bytes) / kSmallPage;
  double huge_pages = work.huge_bytes / kHugePage;
  double bytes = work.bytes + work.shared_bytes;
  double time = kAlways + work.threads * costs.thread;
  switch (method) {
    case Method::kClone:
      time += small_pages * costs.small_page + huge_pages * costs.huge_page;
      break;
    case Method::kCopy:
      time += bytes * costs.byte_read;
      break;
    case Method::kTrack:
      time += bytes * costs.byte_tracked;
      break;
  }
  return std::chrono::nanoseconds(static_cast<std::chrono::nanoseconds::rep>(time));
}

void require_short_pause(pid_t pid, Method method, const PauseLimit& limit) {
  PauseWork work = work_of(pid);
  auto expected = expected_pause(method, work, kUsual);
  if (expected * kSlowest <= limit.for_steps()) return;
  work.huge_bytes = std::min(huge_bytes_of(pid), work.bytes);
  expected = expected_pause(method, work, measured_costs());
  if (expected <= limit.for_steps()) return;
  throw Failure(wire::Step::kOpenTarget, Code::kPauseTooLong,
                std::string("the method ") + name_of(method) + " would probably stop process " +
                    std::to_string(pid) + " for " + milliseconds(expected) + ", and the limit is " +
                    milliseconds(limit.longest()),
                0, pid);
}

}  // namespace reachscan::helper
