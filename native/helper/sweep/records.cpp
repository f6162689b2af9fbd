// Builds each record that the helper writes itself, field by field as wire/records.hpp lists them.
#include "helper/sweep/records.hpp"

#include <sys/utsname.h>

#include <ctime>
#include <vector>

#include "helper/target/process.hpp"
#include "helper/target/text.hpp"

namespace reachscan::helper {
namespace {

Payload threads_record(const std::vector<ThreadFacts>& threads) {
  Payload payload;
  payload.u32(static_cast<std::uint32_t>(threads.size()));
  for (const ThreadFacts& thread : threads)
    payload.u32(static_cast<std::uint32_t>(thread.tid))
        .u64(thread.state.sp)
        .u64(thread.state.pc)
        .u64(thread.state.thread_pointer)
        .str(thread.name);
  return payload;
}

Payload word_owners_record(const RegisterWords& words) {
  Payload payload;
  payload.u32(static_cast<std::uint32_t>(words.owners.size()));
  for (const RegisterWords::Owner& owner : words.owners)
    payload.u32(owner.first).u32(owner.count).u32(static_cast<std::uint32_t>(owner.tid));
  return payload;
}

Payload snapshot_record(const Snapshot& snapshot, const Outcome& outcome) {
  Payload payload;
  payload.str(outcome.method)
      .str(outcome.reason)
      .u64(static_cast<std::uint64_t>(snapshot.pause.count()))
      .u32(outcome.attempts)
      .u32(snapshot.drain_runs)
      .u32(static_cast<std::uint32_t>(snapshot.phases.size()));
  for (const PhaseTime& phase : snapshot.phases)
    payload.str(phase.name).u64(static_cast<std::uint64_t>(phase.duration.count()));
  return payload;
}

void doubt_all_leaks(const SweepResult& result, wire::Doubt reason, Stream& stream) {
  auto leaks = static_cast<std::uint32_t>(result.totals.leaked);
  stream.record(wire::kDoubts, Payload().u32(1).u32(0).u32(leaks).u32(reason));
}

// Memory that was not searched may contain pointers to any of the leaks.
void doubt_for_unsearched_memory(const Snapshot& snapshot, const SweepResult& result,
                                 Stream& stream) {
  if (result.unreadable_pages > 0)
    stream.warning("unreadable-memory",
                   std::to_string(result.unreadable_pages) +
                       " pages of writable memory could not be read and counted as zeros");
  if (snapshot.dontfork_left_out > 0)
    stream.warning("incomplete-memory",
                   std::to_string(snapshot.dontfork_left_out) +
                       " bytes that only the program itself can read, or that it keeps from its "
                       "clones and are too many, were not searched; what only they point to is "
                       "reported as a possible leak");
  if (!snapshot.missing_memory.empty())
    stream.warning("incomplete-memory", snapshot.missing_memory);
  if (result.unreadable_pages > 0 || snapshot.dontfork_left_out > 0 ||
      !snapshot.missing_memory.empty())
    doubt_all_leaks(result, wire::kUnreadableMemory, stream);
}

void doubt_for_kernel(const Snapshot& snapshot, const SweepResult& result, Stream& stream) {
  if (snapshot.unread_in_kernel.empty() || result.totals.leaked == 0) return;
  std::string clauses;
  for (const std::string& clause : snapshot.unread_in_kernel)
    clauses += (clauses.empty() ? "" : "; ") + clause;
  stream.warning("held-by-kernel",
                 clauses +
                     ": what the kernel holds there may point to any of the leaks, which are "
                     "therefore only possible ones");
  doubt_all_leaks(result, wire::kHeldByKernel, stream);
}

void doubt_for_moving_heap(const SweepResult& result, Stream& stream) {
  if (!result.in_motion) return;
  stream.warning("allocator-busy",
                 "a thread was inside the allocator, and may have held what looks lost: all leaks "
                 "are only possible ones");
  doubt_all_leaks(result, wire::kAllocatorBusy, stream);
}

void warn_of_quota(const Snapshot& snapshot, Stream& stream) {
  if (!snapshot.on_quota) return;
  auto used = std::chrono::ceil<std::chrono::milliseconds>(snapshot.quota_used);
  stream.warning("cpu-quota",
                 "the clone used " + std::to_string(used.count()) +
                     " ms of the processor time that a quota grants to the target's control group, "
                     "because it could not be moved into the group of reachscan; the method copy "
                     "uses none");
}

}  // namespace

TargetFacts facts_of(pid_t pid) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return {pid,
          list_threads(pid).size(),
          static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
              static_cast<std::uint64_t>(now.tv_nsec),
          thread_name(pid, pid),
          executable_path(pid),
          command_line(pid)};
}

void name_threads(pid_t pid, std::vector<ThreadFacts>& threads) {
  for (ThreadFacts& thread : threads) {
    try {
      thread.name = thread_name(pid, thread.tid);
    } catch (const Failure&) {
      // Exited since the snapshot; it no longer has a name.
    }
  }
}

void send_target(const TargetFacts& target, Stream& stream) {
  Payload payload;
  payload.u32(static_cast<std::uint32_t>(target.pid))
      .u32(static_cast<std::uint32_t>(target.threads))
      .u64(target.seen)
      .str(target.name)
      .str(target.program)
      .u32(static_cast<std::uint32_t>(target.arguments.size()));
  for (const std::string& argument : target.arguments) payload.str(argument);
  stream.record(wire::kTarget, payload);
}

void send_host(Stream& stream) {
  utsname system{};
  uname(&system);
  std::string text = short_text("/proc/sys/kernel/random/boot_id");
  std::string_view boot_id = text;
  stream.record(wire::kHost, Payload().str(system.nodename).str(take_word(boot_id)));
}

void send_withheld(Stream& stream) { stream.record(wire::kWithheld, Payload().u32(1)); }

void send_progress(Stream& stream, wire::Phase phase, std::uint64_t done, std::uint64_t total) {
  stream.record(wire::kProgress, Payload().u32(phase).u32(0).u64(done).u64(total));
}

void send_outcome(const Snapshot& snapshot, const Outcome& outcome, Stream& stream) {
  stream.record(wire::kMappings, outcome.mappings);
  stream.record(wire::kModules, outcome.modules);
  stream.record(wire::kAbsent, outcome.absent);
  stream.record(wire::kThreads, threads_record(snapshot.threads));
  stream.record(wire::kWordOwners, word_owners_record(snapshot.words));
  stream.record(wire::kSnapshot, snapshot_record(snapshot, outcome));
  doubt_for_unsearched_memory(snapshot, outcome.result, stream);
  doubt_for_kernel(snapshot, outcome.result, stream);
  doubt_for_moving_heap(outcome.result, stream);
  if (outcome.result.may_be_free) doubt_all_leaks(outcome.result, wire::kMayBeFree, stream);
  warn_of_quota(snapshot, stream);
  const abi::Totals& totals = outcome.result.totals;
  stream.record(wire::kFinal, Payload()
                                  .u64(totals.allocations)
                                  .u64(totals.bytes)
                                  .u64(totals.leaked)
                                  .u64(totals.leaked_bytes)
                                  .u64(totals.direct)
                                  .u64(totals.direct_bytes));
}

}  // namespace reachscan::helper
