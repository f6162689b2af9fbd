// Maps blob, stack and output into the clone, and serves the sweeper's requests until it is done.
#include "helper/sweep/inject.hpp"

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "arch/address_space.hpp"
#include "arch/instructions.hpp"
#include "arch/lanes.hpp"
#include "helper/images.hpp"
#include "helper/stop/retry_policy.hpp"
#include "helper/target/memory_kinds.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;
using wire::Step;

constexpr std::uint64_t kStackBytes = 256 << 10;
constexpr std::uint64_t kOutputBytes = 1 << 20;
constexpr auto kNap = std::chrono::milliseconds(1);
constexpr auto kPoll = std::chrono::milliseconds(20);

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Image image_of(Form form) {
  if (kPage == 16 << 10) return Image::kSweeper16;
  if (kPage == 64 << 10) return Image::kSweeper64;
  if (form == Form::kShort) return Image::kShortSweeper;
  return form == Form::kFine ? Image::kFineSweeper : Image::kSweeper;
}

SweepBounds bounds_for(const SweeperInputs& inputs) {
  SweepBounds bounds = bounds_of(inputs.task, inputs.mappings, inputs.words.size());
  bounds.contents = inputs.options.contents_bytes;
  bounds.digests = inputs.options.digests;
  bounds.python = inputs.options.python;
  bounds.threads = inputs.options.threads;
  return bounds;
}

}  // namespace

SweeperRun::SweeperRun(Clone& clone, const SweeperInputs& inputs, Form form)
    : clone_(clone), inputs_(inputs), form_(form), check_(bounds_for(inputs)), calls_(clone) {
  map_code();
  // Stopping the target was urgent; the search need not compete with it.
  setpriority(PRIO_PROCESS, static_cast<id_t>(clone.pid()),
              getpriority(PRIO_PROCESS, 0) + static_cast<int>(inputs.options.nice));
  abi::Control control{};
  control.mapping_count = inputs.mappings.size();
  control.mappings = place(inputs.mappings.data(), control.mapping_count * sizeof(abi::Mapping),
                           "the mapping table");
  control.thread_count = inputs.threads.size();
  control.threads =
      place(inputs.threads.data(), control.thread_count * sizeof(abi::Thread), "the thread table");
  control.word_count = inputs.words.size();
  control.words = place(inputs.words.data(), control.word_count * 8, "the register contents");
  control.output_capacity = kOutputBytes;
  output_ = control.output = map(kOutputBytes, "the output buffer");
  control.task = inputs.task;
  control.query = inputs.options.query;
  control.contents_bytes = inputs.options.contents_bytes;
  control.withheld = inputs.options.withhold_contents ? 1 : 0;
  control.signal_stacks = static_cast<std::uint32_t>(inputs.signal_stacks);
  control.marking_threads = inputs.options.threads;
  control.last_chance = inputs.last_chance ? 1 : 0;
  control.torn = inputs.torn ? 1 : 0;
  control.wide_words = arch::has_lanes() ? 1 : 0;
  control.protection_keys = arch::has_protection_keys() ? 1 : 0;
  control.digests = inputs.options.digests ? 1 : 0;
  control.python = inputs.options.python ? 1 : 0;
  control.may_call = inputs.may_call ? 1 : 0;
  control.may_repeat = inputs.may_repeat ? 1 : 0;
  control.written_ns = inputs.written_ns;
  control.monotonic_ns = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  control.only_suspects = inputs.suspects != nullptr ? 1 : 0;
  const auto& earlier = inputs.suspects != nullptr ? *inputs.suspects : inputs.options.lost_before;
  control.suspect_count = earlier.size();
  control.suspects =
      place(earlier.data(), control.suspect_count * sizeof(abi::Suspect), "the suspects");
  clone_.memory().write(Step::kWriteInputs, control_, &control, sizeof control);

  arch::Registers registers = clone_.registers();
  arch::begin_function(registers, control_ + abi::kControlBytes, 0,
                       map(kStackBytes, "the stack") + kStackBytes);
  clone_.set_registers(registers);
}

std::uint64_t SweeperRun::map(std::uint64_t length, const char* what) {
  std::uint64_t address = clone_.map_memory(length, PROT_READ | PROT_WRITE);
  if (address == 0)
    throw Failure(Step::kMapSweeper, Code::kCloneRefused,
                  std::string("the clone of the target got no memory for ") + what, ENOMEM,
                  clone_.pid());
  return address;
}

std::uint64_t SweeperRun::place(const void* bytes, std::uint64_t length, const char* what) {
  if (length == 0) return 0;
  std::uint64_t address = map(length, what);
  clone_.memory().write(Step::kWriteInputs, address, bytes, length);
  return address;
}

// Memory that was ever writable may not become executable in some targets (PR_SET_MDWE).
void SweeperRun::map_code() {
  const std::vector<unsigned char> image = unpacked(image_of(form_));
  code_bytes_ = (image.size() + kPage - 1) & ~(kPage - 1);
  control_ = map(abi::kControlBytes + code_bytes_, "the sweeper");
  std::uint64_t code = control_ + abi::kControlBytes;
  std::int64_t result =
      clone_.call(arch::kMapCall, {code, code_bytes_, PROT_READ | PROT_EXEC,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, ~0ull, 0});
  if (result < 0)
    throw Failure(Step::kMapSweeper, Code::kCloneRefused,
                  std::string("the clone of the target may not run new code: ") +
                      std::strerror(static_cast<int>(-result)),
                  static_cast<int>(-result), clone_.pid());
  clone_.write_code(code, image.data(), image.size());
}

SweepResult SweeperRun::run(Stream& stream, const OnPhase& on_phase, Clock::time_point deadline) {
  SweepResult result;
  threads_ = {{&clone_, false}};
  deadline_ = deadline;
  clone_.resume();
  for (;;) {
    // However busy the clone is: it could send requests forever.
    require_time(deadline);
    bool quiet = true;
    // Requests of the first thread may change the number of threads.
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      Tracee& thread = *threads_[i].tracee;
      WaitStatus status{};
      if (threads_[i].naps || !poll_for(thread.tid(), Step::kRunSweeper, status)) continue;
      quiet = false;
      switch (handle_stop(thread, status, stream, on_phase, result)) {
        case Next::kFinished:
          return result;
        case Next::kNap:
          threads_[i].naps = true;
          break;
        case Next::kContinue:
          thread.resume();
          break;
      }
    }
    if (quiet) rest();
  }
}

void SweeperRun::fail_killed() const {
  throw Failure(Step::kRunSweeper, flushed_ ? Code::kNoMemory : Code::kCloneRefused,
                "the clone of the target was killed, probably for want of memory", 0, clone_.pid());
}

void SweeperRun::require_time(Clock::time_point deadline) const {
  if (Clock::now() > deadline)
    throw Failure(Step::kRunSweeper, Code::kTimeout, "the search did not end in time", ETIMEDOUT,
                  clone_.pid());
}

void SweeperRun::rest() {
  if (clone_.has_lost_thread()) fail_killed();
  bool anyone_naps = std::any_of(threads_.begin(), threads_.end(),
                                 [](const Thread& thread) { return thread.naps; });
  wait_for_event(anyone_naps ? kNap : kPoll);
  for (Thread& thread : threads_) {
    if (thread.naps) thread.tracee->resume();
    thread.naps = false;
  }
}

SweeperRun::Next SweeperRun::handle_stop(Tracee& thread, WaitStatus status, Stream& stream,
                                         const OnPhase& on_phase, SweepResult& result) {
  if (!status.stopped()) fail_killed();
  // An event, or a signal for the target's process group.
  if (status.event() != 0) return Next::kContinue;
  if (status.signal() == SIGTRAP) {
    arch::skip_trap(thread.tid());
    return &thread == &clone_ ? serve(stream, on_phase, result) : Next::kNap;
  }
  if (status.signal() == SIGSEGV || status.signal() == SIGBUS)
    handle_fault(thread, status.signal(), result);
  if (status.signal() == SIGILL || status.signal() == SIGFPE)
    throw Failure(Step::kRunSweeper, Code::kInternal, "the sweeper crashed", 0, thread.tid(),
                  arch::program_counter(thread.registers()) - control_ - abi::kControlBytes);
  return Next::kContinue;
}

void SweeperRun::answer(std::uint64_t value) const {
  clone_.memory().write(Step::kServeRequest, control_ + offsetof(abi::Control, result), &value,
                        sizeof value);
}

void SweeperRun::start_thread(const abi::Control& control) {
  std::uint64_t code = control_ + abi::kControlBytes;
  check_.thread(threads_.size(), control.first - code < code_bytes_);
  Tracee* thread = clone_.direct_thread(threads_.size() - 1, control.first, control.second);
  answer(thread != nullptr ? 1 : 0);
  if (thread == nullptr) return;
  threads_.push_back({thread, false});
  thread->resume();
}

SweeperRun::Next SweeperRun::call_target(std::uint64_t at) {
  check_.call(inputs_.may_call);
  abi::Call call;
  clone_.memory().read(Step::kServeRequest, at, &call, sizeof call);
  calls_.make(call, deadline_);
  clone_.memory().write(Step::kServeRequest, at, &call, sizeof call);
  return Next::kContinue;
}

SweeperRun::Next SweeperRun::serve(Stream& stream, const OnPhase& on_phase, SweepResult& result) {
  abi::Control control;
  clone_.memory().read(Step::kServeRequest, control_, &control, sizeof control);
  switch (control.request) {
    case abi::Request::kMapMemory:
      answer(clone_.map_memory(control.first, PROT_READ | PROT_WRITE));
      return Next::kContinue;
    case abi::Request::kUnmapMemory:
      clone_.unmap_memory(control.first, control.second);
      return Next::kContinue;
    case abi::Request::kFlush:
      relay_frames(control.first, stream);
      return Next::kContinue;
    case abi::Request::kPhase:
      check_.phase(control.first);
      on_phase(static_cast<wire::Phase>(control.first), control.second, control.third);
      return Next::kContinue;
    case abi::Request::kStartThread:
      start_thread(control);
      return Next::kContinue;
    case abi::Request::kEndThreads:
      threads_.resize(1);
      return Next::kContinue;
    case abi::Request::kNap:
      return Next::kNap;
    case abi::Request::kFinished:
      finish(control, result);
      return Next::kFinished;
    case abi::Request::kCall:
      return call_target(control.first);
    case abi::Request::kSuspects:
      take_suspects(control, result);
      return Next::kContinue;
    case abi::Request::kRefused:
      refuse_scan(control, result);
      return Next::kFinished;
    case abi::Request::kNone:
      break;
  }
  throw Failure(Step::kServeRequest, Code::kInternal, "the sweeper made an unknown request", 0,
                clone_.pid(), arch::program_counter(clone_.registers()));
}

// Uses a copy, since the clone's memory may change between the check and the writing.
void SweeperRun::relay_frames(std::uint64_t bytes, Stream& stream) {
  std::vector<unsigned char> frames(std::min(bytes, kOutputBytes));
  clone_.memory().read(Step::kServeRequest, output_, frames.data(), frames.size());
  check_.frames(frames.data(), frames.size());
  stream.results(frames.data(), frames.size());
  flushed_ = true;
}

void SweeperRun::finish(const abi::Control& control, SweepResult& result) const {
  check_.finish(control.totals);
  result.totals = control.totals;
  result.in_motion = control.in_motion != 0;
  result.may_be_free = control.may_be_free != 0;
}

void SweeperRun::take_suspects(const abi::Control& control, SweepResult& result) {
  check_.suspects(control.second);
  result.suspects.resize(control.second);
  clone_.memory().read(Step::kServeRequest, control.first, result.suspects.data(),
                       control.second * sizeof(abi::Suspect));
}

void SweeperRun::refuse_scan(const abi::Control& control, SweepResult& result) {
  switch (static_cast<abi::Refusal>(control.first)) {
    case abi::Refusal::kAllocatorBusy:
      check_.hint(control.hint);
      result.busy = true;
      result.reason = read_text(control.second);
      result.hint = control.hint;
      return;
    case abi::Refusal::kNoMemory:
      throw Failure(Step::kRunSweeper, flushed_ ? Code::kNoMemory : Code::kCloneRefused,
                    read_text(control.second), ENOMEM, clone_.pid());
    case abi::Refusal::kStartingUp:
      throw Failure(Step::kRunSweeper, Code::kStartingUp, read_text(control.second), EBUSY,
                    clone_.pid());
    case abi::Refusal::kNeedsFine:
      if (form_ != Form::kCommon) break;
      result.needs_fine = true;
      return;
    case abi::Refusal::kLayoutUnknown:
      break;
  }
  std::string place = control.third != 0 ? " (" + place_of(control.third) + ")" : "";
  throw Failure(Step::kRunSweeper, Code::kLayoutUnknown, read_text(control.second) + place, 0,
                clone_.pid(), control.third);
}

// Mapped but unreadable pages (guard pages, truncated files) contain nothing for the sweeper: a
// page of zeros replaces them and the instruction is executed again.
void SweeperRun::handle_fault(Tracee& thread, int signal, SweepResult& result) {
  siginfo_t info{};
  ptrace(PTRACE_GETSIGINFO, thread.tid(), nullptr, &info);
  auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  auto at =
      std::upper_bound(inputs_.mappings.begin(), inputs_.mappings.end(), address,
                       [](std::uint64_t value, const abi::Mapping& m) { return value < m.end; });
  bool known = at != inputs_.mappings.end() && address >= at->start && info.si_code != SI_KERNEL;
  if (!known || !thread.replace_by_zeros(address & ~(kPage - 1)))
    throw Failure(
        Step::kRunSweeper, Code::kInternal,
        std::string("the sweeper crashed with ") + strsignal(signal) + " at +" +
            hex(arch::program_counter(thread.registers()) - control_ - abi::kControlBytes),
        0, thread.tid(), address);
  bool may_hold_pointers = (at->perms & wire::kWrite) != 0 && (at->flags & abi::kAbsent) == 0;
  if (may_hold_pointers) ++result.unreadable_pages;
}

std::string SweeperRun::place_of(std::uint64_t address) const {
  for (const MapEntry& entry : inputs_.entries)
    if (address >= entry.start && address < entry.end && is_file(entry))
      return entry.path + " at " + hex(address);
  return "at " + hex(address);
}

std::string SweeperRun::read_text(std::uint64_t address) const {
  std::string text;
  for (char c;
       text.size() < 256 && clone_.memory().try_read(address + text.size(), &c, 1) && c != 0;)
    text.push_back(c);
  return text;
}

}  // namespace reachscan::helper
