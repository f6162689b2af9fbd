// Starts the process by a trampoline that one thread runs through, and tells who shares memory.
#include "helper/recording/worker.hpp"

#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "arch/address_space.hpp"
#include "arch/system_calls.hpp"
#include "helper/capture/clone_preconditions.hpp"
#include "helper/stop/preconditions.hpp"
#include "helper/stop/realtime_priority.hpp"
#include "helper/stop/stops.hpp"
#include "helper/target/memory_sharing.hpp"

namespace reachscan::helper {
namespace {

constexpr long kCloseRange = 436;

// Returns the address of a system call instruction in the vdso, 0 if there is none.
std::uint64_t find_gadget(const TrampolineSite& site, const Memory& memory) {
  std::vector<unsigned char> code(site.address - site.vdso);
  const unsigned char* call = arch::reachscan_gadget;
  if (!memory.try_read(site.vdso, code.data(), code.size())) return 0;
  for (std::size_t at = 0; at + arch::kSyscallLength <= code.size(); at += arch::kCodeAlignment)
    if (std::equal(call, call + arch::kSyscallLength, &code[at])) return site.vdso + at;
  return 0;
}

}  // namespace

std::unique_ptr<Worker> Worker::start(const RecordingSession& session,
                                      const std::function<void(Freeze&)>& look) {
  if (share_memory(getpid(), getpid()) != Sharing::kYes) return nullptr;
  try {
    require_no_init(session.pid());
    require_orphans_collected(session.pid(), session.deadline);
    return std::unique_ptr<Worker>(new Worker(session, look));
  } catch (const Failure& failure) {
    if (failure.code != Code::kCloneRefused) throw;
    return nullptr;
  }
}

Worker::Worker(const RecordingSession& session, const std::function<void(Freeze&)>& look)
    : pid_(session.pid()) {
  std::uint64_t gadget = find_gadget(session.site, session.memory);
  if (gadget == 0) refuse_clone(pid_, "the vdso makes no system call");
  pid_t made = 0;
  {
    RealtimePriority urgency;
    Freeze freeze(pid_, session.limit, session.deadline, Reach::kFirstThread);
    look(freeze);
    CloneResult result = start_worker(freeze, session.memory, session.site, freeze.deadline());
    made = result.clone;
    leave_trampoline(freeze, session.memory, session.site, result.injected, freeze.deadline());
    freeze.release();
    pause_ = freeze.pause();
  }
  hands_ = std::make_unique<Middleman>(made, session.deadline, gadget);
  // With a table of its own that is empty, nothing stays open because of it. Kernels before 5.9
  // cannot do this.
  hands_->call(kCloseRange, {0, ~0u, CLOSE_RANGE_UNSHARE}, session.deadline);
}

void Worker::require_same_program() const {
  if (share_memory(pid_, hands_->tid()) == Sharing::kYes) return;
  throw Failure(wire::Step::kReadMemory, Code::kTargetExited,
                name_of(pid_) + " executed another program meanwhile", 0, pid_);
}

bool Worker::has_other(pid_t pid, const Worker* own) {
  return find_sharing(pid, own == nullptr ? 0 : own->hands_->tid(), Sharing::kUnknown) != 0;
}

}  // namespace reachscan::helper
