// Maps the recorder into the target, has it find what to hook, and hooks that while the target is
// stopped. Each hooked word works on its own: we may be killed between any two.
#include "helper/recording/attach.hpp"

#include <elf.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "arch/imports.hpp"
#include "arch/thread_descriptor.hpp"
#include "helper/capture/clone_preconditions.hpp"
#include "helper/recording/injected_image.hpp"
#include "helper/recording/loaded_functions.hpp"
#include "helper/recording/moved_starts.hpp"
#include "helper/recording/session.hpp"
#include "helper/recording/static_program.hpp"
#include "helper/recording/worker.hpp"
#include "helper/stop/preconditions.hpp"
#include "helper/stop/seccomp_filters.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

using recorder::Injection;
using recorder::StartOutcome;
using wire::Step;

class Attachment {
 public:
  explicit Attachment(const RecordingSession& session) : session_(session) {}

  // Called before each pause. Does all that can be done while the target runs.
  void prepare() {
    plan();
    if (starts_->obstacle().empty()) build_by_worker();
  }

  // Called while the target is stopped.
  void run(Freeze& freeze) {
    if (worker_) worker_->require_same_program();
    note_filters(freeze.has_filtered_thread());
    starts_->require_untouched(freeze, session_.memory);
    if (!worker_) {
      note_thread_numbers(freeze);
      use_middleman(session_, freeze, [&](Middleman& middleman) { build(middleman); });
      require_free_place();
      require_settled();
    }
    if (injection_->begun == StartOutcome::kRecording) hook();
  }

  // Called afterwards.
  void dismiss_worker() { worker_.reset(); }

  // Called if it could not be hooked. If only some of it was, what these hooks lead to stays.
  void undo() {
    std::unique_ptr<Worker> worker = std::move(worker_);
    if (worker && !is_hooking_) remove(worker->hands());
  }

  // How long a thread of the target was stopped for the worker.
  std::chrono::nanoseconds pause() const { return pause_; }

  // Throws Failure if it could not be done.
  const Injection& result() const {
    switch (injection_->begun) {
      case StartOutcome::kRecording:
        return *injection_;
      case StartOutcome::kNoLoader:
        fail("does not tell what its loader has loaded");
      case StartOutcome::kNothingToHook:
        fail("has no allocator that its loader knows");
      case StartOutcome::kBadSettings:
        fail("was told settings that its recorder does not understand");
      default:
        fail(
            "cannot allocate memory for the recorder: a limit of its address space or its control "
            "group, or a security policy, forbids it" +
            (error_ != 0 ? std::string(" (") + std::strerror(error_) + ")" : ""));
    }
  }

 private:
  void plan() {
    is_hooking_ = false;
    pid_t pid = session_.pid();
    injection_ = std::make_unique<Injection>();
    const std::string& settings = session_.options.attach;
    if (settings.size() >= sizeof injection_->settings)
      throw Failure(Step::kOpenTarget, Code::kInternal, "the settings are too long");
    std::copy(settings.begin(), settings.end(), injection_->settings);
    injection_->magic = recorder::kInjectionMagic;
    injection_->layout = recorder::kInjectionLayout;
    injection_->program_headers = auxiliary(pid, AT_PHDR);
    injection_->program_header_count = auxiliary(pid, AT_PHNUM);
    injection_->main_stack_top = end_of_main_stack(pid);
    injection_->kernel_library = session_.site.vdso;
    injection_->pid = static_cast<std::uint64_t>(inner_id(pid, pid));
    note_filters(has_filtered_thread(pid));
    if (auto program = find_static_program(pid, session_.memory)) {
      injection_->is_static = 1;
      injection_->program_bias = program->bias;
      injection_->unwind_tables = program->unwind_tables;
      starts_.emplace(pid, program->functions, image_, session_.memory, *injection_);
      if (!starts_->obstacle().empty())
        fail("is linked statically, and its " + starts_->obstacle());
    } else {
      starts_.emplace(pid, find_loaded_functions(pid, session_.memory), image_, session_.memory,
                      *injection_);
    }
  }

  void note_filters(bool is_confined) {
    if (worker_ && is_confined && injection_->is_confined == 0)
      throw Failure(Step::kMapSweeper, Code::kRetry, "the process installs a seccomp filter");
    injection_->is_confined = is_confined ? 1 : 0;
  }

  // Words that calls go through are found while nobody changes them, in the stopped target.
  void build_by_worker() {
    worker_ = Worker::start(session_, [this](Freeze& freeze) { note_thread_numbers(freeze); });
    if (!worker_) return;
    pause_ = worker_->pause();
    bool has_run = build(worker_->hands());
    require_free_place();
    if (has_run && !hooks_words()) {
      result();
      return;
    }
    undo();
    plan();
  }

  bool hooks_words() const {
    const recorder::Slot* slots = injection_->slots;
    return std::any_of(slots, slots + injection_->slot_count, [](const recorder::Slot& slot) {
      return slot.use != recorder::SlotUse::kEntry;
    });
  }

  // Returns false if the recorder's code failed.
  bool build(Middleman& middleman) {
    region_ = 0;
    error_ = 0;
    is_taken_ = false;
    has_failed_ = false;
    if (!map(middleman) || !write_image() || !begin(middleman)) remove(middleman);
    return !has_failed_;
  }

  void require_free_place() const {
    if (is_taken_)
      throw Failure(Step::kMapSweeper, Code::kRetry, "the process maps memory meanwhile");
  }

  // A thread may be stopped where the loader still lists a library whose memory is gone.
  void require_settled() const {
    if (has_failed_)
      throw Failure(Step::kMapSweeper, Code::kRetry, "the process loads or closes a library");
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Failure(Step::kMapSweeper, Code::kUnrecordable, name_of(session_.pid()) + " " + why,
                  error_, session_.pid());
  }

  void note_thread_numbers(Freeze& freeze) {
    for (const StoppedThread& thread : freeze.threads()) {
      if (thread.tid != session_.pid()) continue;
      std::uint64_t pointer = arch::thread_pointer(thread.registers);
      for (std::uint64_t offset : {number_of_glibc(pointer), arch::kMuslThreadNumber}) {
        std::uint32_t number = 0;
        bool is_read = session_.memory.try_read(pointer + offset, &number, sizeof number);
        if (offset != 0 && is_read && number == injection_->pid)
          injection_->thread_number_offset = offset;
      }
    }
  }

  // Returns where glibc stores a thread's id, after its thread pointer; 0 if that is not known.
  std::uint64_t number_of_glibc(std::uint64_t thread_pointer) const {
    auto shape = arch::descriptor_shape(thread_pointer, [this](std::uint64_t at) {
      std::uint64_t word = 0;
      return session_.memory.try_read(at, &word, sizeof word) ? word : 0;
    });
    return shape.bytes == 0 ? 0 : arch::kThreadNumber - shape.thread_pointer;
  }

  std::int64_t call(Middleman& middleman, std::uint64_t number, arch::CallArguments arguments) {
    std::int64_t result = middleman.call(number, arguments, session_.deadline);
    if (result < 0) error_ = static_cast<int>(-result);
    return result;
  }

  bool allow(Middleman& middleman, std::uint64_t from, std::uint64_t to, std::uint64_t protection) {
    return call(middleman, SYS_mprotect, {region_ + from, to - from, protection}) == 0;
  }

  // Memory that was ever writable may not become executable in some targets (PR_SET_MDWE).
  bool map_code(Middleman& middleman) {
    std::uint64_t code = region_ + image_.code(), bytes = image_.data() - image_.code();
    return call(middleman, arch::kMapCall,
                {code, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, ~0ull,
                 0}) >= 0;
  }

  bool map(Middleman& middleman) {
    std::uint64_t place = starts_->place();
    std::uint64_t flags =
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (place != 0 ? MAP_FIXED_NOREPLACE : 0);
    constexpr std::uint64_t kOwnData = PROT_READ | PROT_WRITE;
    std::int64_t made =
        call(middleman, arch::kMapCall, {place, image_.region_bytes(), kOwnData, flags, ~0ull, 0});
    is_taken_ = made == -EEXIST;
    if (made < 0) return false;
    region_ = static_cast<std::uint64_t>(made);
    is_taken_ = place != 0 && region_ != place;  // before Linux 4.17, the address is only a hint
    if (is_taken_) return false;
    return announce() && allow(middleman, 0, image_.control(), PROT_NONE) && map_code(middleman) &&
           allow(middleman, image_.end(), image_.region_bytes(), PROT_NONE);
  }

  // If we are killed afterwards, others find the region and remove it.
  bool announce() {
    injection_->region = {region_, image_.region_bytes()};
    injection_->code = {region_ + image_.code(), image_.data() - image_.code()};
    return write(control(), injection_.get(), offsetof(Injection, program_headers));
  }

  bool write_image() {
    std::vector<unsigned char> bytes = image_.relocated(region_);
    starts_->write_moved_starts(bytes);
    std::size_t used =
        offsetof(Injection, slots) + injection_->slot_count * sizeof injection_->slots[0];
    std::uint64_t settings = control() + offsetof(Injection, settings);
    return write(control(), injection_.get(), used) &&
           write(settings, injection_->settings, session_.options.attach.size() + 1) &&
           write(injection_->code.start, bytes.data(), bytes.size());
  }

  bool write(std::uint64_t address, const void* bytes, std::size_t length) {
    bool done = session_.memory.try_write(address, bytes, length);
    if (!done) error_ = errno;
    return done;
  }

  bool begin(Middleman& middleman) {
    bool ran =
        middleman.run(image_.entry(region_), control(), region_ + image_.code(), session_.deadline);
    injection_ = read_injection(session_.memory, control());
    has_failed_ = !ran;
    if (!ran || injection_->begun != StartOutcome::kRecording) return false;
    write_stubs();
    return true;
  }

  // Called if nothing was ever hooked. Others leave it alone as long as the middleman lives.
  void remove(Middleman& middleman) {
    if (injection_->begun == StartOutcome::kRecording) injection_->begun = StartOutcome::kNot;
    if (region_ == 0) return;
    // Otherwise the next try would take them for those of a recorder at work.
    if (has_failed_)
      for (const auto& tables : find_lost_tables(session_.pid(), session_.memory, *injection_))
        middleman.call(SYS_munmap, {tables.start, tables.bytes}, session_.deadline);
    unmap_extents(session_, middleman, control(), *injection_);
    middleman.call(SYS_munmap, {region_, image_.region_bytes()}, session_.deadline);
    region_ = 0;
  }

  void hook() {
    is_hooking_ = true;
    for (std::uint32_t frees : {1u, 0u})
      for (std::uint32_t i = 0; i < injection_->slot_count; ++i) {
        const recorder::Slot& slot = injection_->slots[i];
        std::uint64_t word = hooked_word(*injection_, slot);
        if (injection_->hooks[slot.hook].frees == frees)
          session_.memory.write(Step::kRelease, slot.address, &word, hooked_bytes(slot));
      }
    std::uint32_t hooked = injection_->hooked = 1;
    session_.memory.write(Step::kRelease, control() + offsetof(Injection, hooked), &hooked,
                          sizeof hooked);
  }

  void write_stubs() const {
    std::vector<unsigned char> stubs = stub_pages(*injection_, &recorder::Hook::function);
    session_.memory.write(Step::kRelease, injection_->code.start, stubs.data(), stubs.size());
  }

  std::uint64_t control() const { return region_ + image_.control(); }

  const RecordingSession& session_;
  InjectedImage image_;
  std::unique_ptr<Injection> injection_;
  std::optional<MovedStarts> starts_;
  std::unique_ptr<Worker> worker_;  // null if all is done while the target is stopped
  std::chrono::nanoseconds pause_{};
  bool is_hooking_ = false;
  bool is_taken_ = false;    // the place where the region must be
  bool has_failed_ = false;  // the recorder's code, in the target
  std::uint64_t region_ = 0;
  int error_ = 0;
};

const char* command_of(recorder::WayIn way_in) {
  switch (way_in) {
    case recorder::WayIn::kRun:
      return "reachscan run";
    case recorder::WayIn::kAttach:
      return "reachscan attach (`reachscan detach PID` ends it)";
    default:
      return "libreachscan";
  }
}

// Removes what a killed attach has left behind.
void require_unrecorded(const RecordingSession& session) {
  Found found = find_recorder(session.pid(), session.memory);
  if (found.injection != 0 && read_injection(session.memory, found.injection)->hooked == 0) {
    remove_recorder(session, found.injection, Removable::kAbandoned);
    found = find_recorder(session.pid(), session.memory);
  }
  if (found.way_in)
    throw Failure(
        Step::kOpenTarget, Code::kUnrecordable,
        name_of(session.pid()) + " is already being recorded, by " + command_of(*found.way_in),
        EALREADY, session.pid());
}

template <typename Work>
void with_session(const Options& options, Stream& stream, Work work) {
  require_process(options.pid);
  require_supported(options.pid);
  require_long_words(options.pid, "the recorder is not made for");
  require_able_to_run(options.pid);
  Clock::time_point deadline = Clock::now() + options.timeout;
  require_stoppable(options.pid, deadline);
  Memory memory(options.pid);
  PauseLimit limit(options.pid, options.max_pause, stream);
  work(RecordingSession{options, memory, limit, deadline,
                        find_trampoline_site(options.pid, memory)});
}

}  // namespace

void attach(const Options& options, Stream& stream) {
  with_session(options, stream, [&](const RecordingSession& session) {
    Attachment attachment(session);
    auto prepare = [&] {
      require_unrecorded(session);
      attachment.prepare();
    };
    auto pause =
        stop_target(session, {prepare, [&](Freeze& freeze) { attachment.run(freeze); },
                              [&] { attachment.dismiss_worker(); }, [&] { attachment.undo(); }});
    send_hooks({pause, attachment.pause()}, &attachment.result(), 0, stream);
  });
}

void detach(const Options& options, Stream& stream) {
  with_session(options, stream, [&](const RecordingSession& session) {
    Found found = find_recorder(options.pid, session.memory);
    if (found.injection == 0)
      throw Failure(Step::kOpenTarget, Code::kUnrecordable,
                    name_of(options.pid) +
                        (found.way_in ? std::string(" is recorded by ") +
                                            command_of(*found.way_in) + ", not by reachscan attach"
                                      : " is not being recorded"),
                    0, options.pid);
    Removal removal = remove_recorder(session, found.injection, Removable::kAny);
    send_hooks(removal.pauses, nullptr, removal.kept, stream);
  });
}

}  // namespace reachscan::helper
