// Finds recorders by their first words, and stops the target for a moment.
#include "helper/recording/session.hpp"

#include <elf.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "arch/address_space.hpp"
#include "arch/imports.hpp"
#include "helper/stop/preconditions.hpp"
#include "helper/stop/realtime_priority.hpp"
#include "helper/stop/retry_policy.hpp"
#include "helper/stop/tracer_thread.hpp"
#include "helper/target/process.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

// The number of words that calls go through.
std::uint32_t call_count(const recorder::Injection& injection) {
  const recorder::Slot* end = injection.slots + injection.slot_count;
  return static_cast<std::uint32_t>(std::count_if(
      injection.slots, end,
      [](const recorder::Slot& slot) { return slot.use != recorder::SlotUse::kSymbol; }));
}

}  // namespace

std::uint64_t auxiliary(pid_t pid, std::uint64_t type) {
  std::string text = read_proc_file(pid, "auxv", wire::Step::kOpenTarget);
  for (std::size_t at = 0; at + sizeof(Elf64_auxv_t) <= text.size(); at += sizeof(Elf64_auxv_t)) {
    Elf64_auxv_t entry;
    std::memcpy(&entry, text.data() + at, sizeof entry);
    if (entry.a_type == type) return entry.a_un.a_val;
  }
  return 0;
}

Found find_recorder(pid_t pid, const Memory& memory) {
  constexpr std::uint32_t kOwnData = wire::kRead | wire::kWrite;
  Found found;
  auto magic_at = [&memory](std::uint64_t address) {
    std::uint64_t magic = 0;
    return memory.try_read(address, &magic, sizeof magic) ? magic : 0;
  };
  for (const MapEntry& entry : read_mappings(pid)) {
    if (entry.perms != kOwnData || entry.inode != 0) continue;
    // The guard page in front of it is closed later.
    for (std::uint64_t at : {entry.start, entry.start + arch::kLargestPage})
      if (magic_at(at) == recorder::kInjectionMagic) {
        found.has_several = found.injection != 0;
        found.injection = at;
      }
    recorder::Header header{};
    if (!memory.try_read(entry.start, &header, sizeof header) || header.magic != recorder::kMagic)
      continue;
    found.way_in = header.options.way_in;
    bool came_first = header.options.way_in == recorder::WayIn::kRun ||
                      header.options.way_in == recorder::WayIn::kLibrary;
    if (!came_first)
      found.tables.push_back(
          {entry.start - arch::kLargestPage, entry.end - entry.start + 2 * arch::kLargestPage});
  }
  return found;
}

namespace {

[[noreturn]] void refuse_injection() {
  throw Failure(wire::Step::kReadMemory, Code::kUnrecordable,
                "another version of reachscan has put its recorder into the process, and only "
                "that one can remove it");
}

// Another reachscan, or what a killed one has started, may be unmapping it.
[[noreturn]] void fail_as_being_removed() {
  throw Failure(wire::Step::kReadMemory, Code::kRetry, "the recorder is just being removed");
}

void read_or_retry(const Memory& memory, std::uint64_t address, void* buffer, std::size_t length) {
  if (!memory.try_read(address, buffer, length)) fail_as_being_removed();
}

// The process may have written anything there.
void require_understood(const recorder::Injection& injection) {
  if (injection.layout != recorder::kInjectionLayout ||
      injection.slot_count > recorder::kMaxSlots ||
      injection.extent_count > recorder::kMaxExtents ||
      injection.hook_count > recorder::kMaxHooks ||
      injection.threads.count > recorder::kMaxThreadStates ||
      (injection.begun == recorder::StartOutcome::kRecording && injection.threads.count == 0))
    refuse_injection();
}

void require_known_hooks(const recorder::Injection& injection) {
  const recorder::Slot* slots = injection.slots;
  if (std::any_of(slots, slots + injection.slot_count,
                  [&](const recorder::Slot& slot) { return slot.hook >= injection.hook_count; }))
    refuse_injection();
}

}  // namespace

bool read_again(const Memory& memory, std::uint64_t address, recorder::Injection& injection) {
  constexpr std::size_t kHead = offsetof(recorder::Injection, slots),
                        kSlot = sizeof(recorder::Slot);
  std::uint32_t known = injection.slot_count;
  if (!memory.try_read(address, &injection, kHead + known * kSlot) ||
      injection.magic != recorder::kInjectionMagic)
    return false;
  require_understood(injection);
  if (injection.slot_count > known)
    read_or_retry(memory, address + kHead + known * kSlot, injection.slots + known,
                  (injection.slot_count - known) * kSlot);
  require_known_hooks(injection);
  return true;
}

std::vector<recorder::MappedRange> find_lost_tables(pid_t pid, const Memory& memory,
                                                    const recorder::Injection& injection) {
  Found found = find_recorder(pid, memory);
  if (found.has_several) return {};
  for (std::uint32_t i = 0; i < injection.extent_count; ++i) {
    std::uint64_t known = injection.extents[i].start;
    std::erase_if(found.tables, [&](const auto& tables) { return tables.start == known; });
  }
  return found.tables;
}

std::unique_ptr<recorder::Injection> read_injection(const Memory& memory, std::uint64_t address) {
  auto injection = std::make_unique<recorder::Injection>();
  if (!read_again(memory, address, *injection)) fail_as_being_removed();
  return injection;
}

std::uint64_t unmap_extents(const RecordingSession& session, Middleman& middleman,
                            std::uint64_t address, const recorder::Injection& injection) {
  constexpr auto kNot = recorder::StartOutcome::kNot;
  constexpr recorder::MappedRange kNone{};
  std::uint64_t begun = address + offsetof(recorder::Injection, begun), kept = 0;
  bool is_told = session.memory.try_write(begun, &kNot, sizeof kNot);
  for (std::uint32_t i = 0; i < injection.extent_count; ++i) {
    recorder::MappedRange extent = injection.extents[i];
    std::uint64_t entry = address + offsetof(recorder::Injection, extents) + i * sizeof kNone;
    if (extent.bytes != 0 &&
        (!is_told || !session.memory.try_write(entry, &kNone, sizeof kNone) ||
         middleman.call(SYS_munmap, {extent.start, extent.bytes}, session.deadline) < 0))
      kept += extent.bytes;
  }
  return kept;
}

// Nothing but the word itself leads to the hook of an entry, so it needs no stub. Symbols contain
// the distance from the start of the module.
std::uint64_t hooked_word(const recorder::Injection& injection, const recorder::Slot& slot) {
  if (slot.use == recorder::SlotUse::kEntry)
    return arch::with_jump(slot.original, slot.address, injection.hooks[slot.hook].function);
  std::uint64_t stub = stub_of(injection, slot.hook, slot.use);
  if (slot.use != recorder::SlotUse::kSymbol) return stub;
  return slot.original + (stub - injection.hooks[slot.hook].next);
}

std::size_t hooked_bytes(const recorder::Slot& slot) {
  return slot.use == recorder::SlotUse::kEntry ? arch::start_bytes(slot.original)
                                               : sizeof slot.original;
}

std::vector<unsigned char> stub_pages(const recorder::Injection& injection,
                                      std::uint64_t recorder::Hook::*target) {
  std::vector<unsigned char> stubs(2 * recorder::kStubPage);
  for (std::uint32_t i = 0; i < injection.hook_count; ++i)
    for (recorder::SlotUse use : {recorder::SlotUse::kCall, recorder::SlotUse::kPointer}) {
      arch::Stub stub(injection.hooks[i].*target);
      std::uint64_t at = stub_of(injection, i, use) - injection.code.start;
      std::copy(std::begin(stub.code), std::end(stub.code), &stubs[at]);
    }
  return stubs;
}

std::chrono::nanoseconds stop_target(const RecordingSession& session, const PauseSteps& steps) {
  std::chrono::nanoseconds pause{};
  for (RetryPolicy retry_policy(session.options.verbose, session.deadline);;) {
    try {
      run_as_tracer([&] {
        try {
          steps.before();
          RealtimePriority urgency;
          Freeze freeze(session.pid(), session.limit, session.deadline);
          steps.stopped(freeze);
          freeze.release();
          pause = freeze.pause();
        } catch (...) {
          steps.give_up();
          throw;
        }
        steps.after();
      });
      return pause;
    } catch (const Failure& failure) {
      retry_policy.wait_out(failure);
      if (failure.code == Code::kAsleep) require_stoppable(session.pid(), session.deadline);
    }
  }
}

void use_middleman(const RecordingSession& session, Freeze& freeze,
                   const std::function<void(Middleman&)>& use) {
  pid_t injected = use_middleman(freeze, session.memory, session.site, freeze.deadline(), use);
  leave_trampoline(freeze, session.memory, session.site, injected, freeze.deadline());
}

void send_hooks(const Pauses& pauses, const recorder::Injection* injection, std::uint64_t kept,
                Stream& stream) {
  bool hooked = injection != nullptr;
  stream.record(wire::kHooks, Payload()
                                  .u64(static_cast<std::uint64_t>(pauses.of_all.count()))
                                  .u64(static_cast<std::uint64_t>(pauses.of_one.count()))
                                  .u32(hooked ? call_count(*injection) : 0)
                                  .u32(hooked ? injection->module_count : 0)
                                  .u32(hooked ? injection->other_words : 0)
                                  .u64(kept));
  stream.record(wire::kFinal, Payload().u64(0).u64(0).u64(0).u64(0).u64(0).u64(0));
}

}  // namespace reachscan::helper
