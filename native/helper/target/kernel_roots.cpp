// Reads values that the kernel keeps for a program: from fdinfo, from its list of timers, and from
// signal queues.
#include "helper/target/kernel_roots.hpp"

#include <sys/ptrace.h>

#include <array>
#include <charconv>
#include <csignal>
#include <map>
#include <set>

#include "helper/target/completions.hpp"
#include "helper/target/memory_kinds.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

void add(std::vector<std::uint64_t>& words, const std::vector<std::uint64_t>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

void examine_descriptor(pid_t pid, const std::string& number, const std::string& name,
                        KernelRoots& held) {
  if (name.rfind("anon_inode:", 0) != 0) return;
  std::string text = try_read_proc_file(pid, ("fdinfo/" + number).c_str());
  // "tfd:        5 events:       19 data:     55d0c0ffee00  pos:0 ..."
  if (name == "anon_inode:[eventpoll]") add(held.words, numbers_after(text, "data:", 16));
  if (name == "anon_inode:[eventfd]") add(held.words, numbers_after(text, "eventfd-count:", 16));
  if (name == "anon_inode:[io_uring]") {
    // Completions for which the ring has no room: "  user_data=94337750602048, res=0, flags=0"
    add(held.words, numbers_after(text, "user_data=", 10));
    held.rings[number] = parse_ring(text);
  }
}

// For each signal the kernel walks the queue from its start: a thousand take a millisecond, a
// hundred thousand would take minutes.
constexpr std::uint64_t kMaxSignals = 1024;

// `flags`: 0 for the thread's own queue, PTRACE_PEEKSIGINFO_SHARED for that of the process. Returns
// false if part of the queue was not read.
bool add_signal_values(pid_t tid, std::uint32_t flags, std::vector<std::uint64_t>& words) {
  std::array<siginfo_t, 32> pending;
  __ptrace_peeksiginfo_args request{0, flags, static_cast<std::int32_t>(pending.size())};
  while (request.off < kMaxSignals) {
    long count = ptrace(PTRACE_PEEKSIGINFO, tid, &request, pending.data());
    for (long i = 0; i < count; ++i)
      words.push_back(reinterpret_cast<std::uintptr_t>(pending[i].si_value.sival_ptr));
    if (count < static_cast<long>(pending.size())) return true;
    request.off += static_cast<std::uint64_t>(count);
  }
  request.nr = 1;
  return ptrace(PTRACE_PEEKSIGINFO, tid, &request, pending.data()) <= 0;
}

}  // namespace

bool handles_signals(pid_t pid) {
  constexpr std::uint64_t kOfLibrary = 3ull << 31;  // 32 and 33: thread cancellation, setuid()
  std::string caught = status_field(pid, pid, "SigCgt");
  std::uint64_t signals = 0;
  std::from_chars(caught.data(), caught.data() + caught.size(), signals, 16);
  return (signals & ~kOfLibrary) != 0;
}

bool add_pending_signal_words(const std::vector<pid_t>& threads,
                              std::vector<std::uint64_t>& words) {
  bool all = true;
  for (pid_t tid : threads) all &= add_signal_values(tid, 0, words);
  if (!threads.empty()) all &= add_signal_values(threads.front(), PTRACE_PEEKSIGINFO_SHARED, words);
  return all;
}

KernelRoots read_kernel_roots(pid_t pid, const Memory& memory) {
  KernelRoots held;
  std::map<std::string, std::string> descriptors = list_descriptors(pid);
  for (const auto& [link, name] : descriptors)
    examine_descriptor(pid, link.substr(link.rfind('/') + 1), name, held);
  // "signal: 34/000055d0c0ffee00"
  add(held.words, numbers_after(try_read_proc_file(pid, "timers"), "/", 16));
  std::vector<MapEntry> mappings = read_mappings(pid);
  read_ring_memory(held.rings, mappings, memory);
  for (const MapEntry& entry : mappings) {
    if (!is_asynchronous_context(entry)) continue;
    held.asynchronous = true;
    add_completions(entry, memory, held.words);
  }
  held.pipes = find_own_pipes(descriptors);
  held.queues = OwnQueues(pid, descriptors);
  held.queues.look(held.messages);
  return held;
}

std::vector<std::string> unread(const KernelRoots& before, const KernelRoots& after) {
  std::vector<std::string> found;
  std::string requests = unread_requests(before.rings, after.rings);
  if (!requests.empty()) found.push_back(requests);
  if (before.asynchronous || after.asynchronous)
    found.push_back("requests made by io_submit() may be in flight, of which nobody is told");
  std::set<std::string> messages = before.messages;
  messages.insert(after.messages.begin(), after.messages.end());
  found.insert(found.end(), messages.begin(), messages.end());
  return found;
}

}  // namespace reachscan::helper
