// The helper as a process of its own. A short-lived child starts it, so that it is an orphan from
// the start; it waits until the kernel knows that it may trace us.
#include "library/helper_process.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>

#include "library/annotate.hpp"
#include "library/text.hpp"

extern char** environ;

namespace reachscan::library {
namespace {

constexpr std::size_t kStack = 64 << 10;
constexpr std::size_t kPath = 4096;
constexpr std::size_t kWord = 24;
constexpr int kHelperTimeoutMs = 5000;  // with a helper that has sent everything

bool is_program(const char* path) { return access(path, X_OK) == 0; }

// Searches the folder of the library (or of the program that contains it) and nearby folders.
bool find_helper(char* path) {
  if (const char* given = secure_getenv("REACHSCAN_HELPER"); given != nullptr && *given != 0) {
    Text(path, kPath).str(given);
    return is_program(path);
  }
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&reachscan_check), &info) != 0 && info.dli_fname != nullptr) {
    const char* slash = std::strrchr(info.dli_fname, '/');
    std::size_t folder =
        slash != nullptr ? static_cast<std::size_t>(slash + 1 - info.dli_fname) : 0;
    for (const char* name :
         {"reachscan-helper", "../reachscan-helper", "../libexec/reachscan/reachscan-helper",
          "../../libexec/reachscan/reachscan-helper"}) {
      Text(path, kPath).str(info.dli_fname, folder).str(name);
      if (is_program(path)) return true;
    }
  }
  Text(path, kPath).str(REACHSCAN_INSTALLED_HELPER);
  return is_program(path);
}

// Builds the helper's command line. Its words are stored at `words`.
void set_arguments(const reachscan_options& options, const char* const* more, char* path,
                   char (*words)[kWord], char** arguments) {
  auto add = [&](const char* option, std::uint64_t value) {
    *arguments++ = const_cast<char*>(option);
    Text(*words, kWord).number(value);
    *arguments++ = *words++;
  };
  *arguments++ = path;
  add("--pid", static_cast<std::uint64_t>(getpid()));
  if (options.timeout_s != 0) add("--timeout", options.timeout_s);
  if (options.max_pause_ms != 0) add("--max-pause", options.max_pause_ms);
  if (options.method != nullptr) {
    *arguments++ = const_cast<char*>("--method");
    *arguments++ = const_cast<char*>(options.method);
  }
  while (more != nullptr && *more != nullptr) *arguments++ = const_cast<char*>(*more++);
  *arguments = nullptr;
}

// No handler of ours may run in a child that shares our memory.
class NoSignals {
 public:
  NoSignals() {
    std::uint64_t all = ~std::uint64_t{0};
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, sizeof all);
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals() { syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof before_); }

 private:
  std::uint64_t before_ = 0;
};

// Opens a pipe above the standard descriptors, which a program may have closed.
bool open_pipe(int (&ends)[2]) {
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  for (int& end : ends) {
    int raised = fcntl(end, F_DUPFD_CLOEXEC, 3);
    close(end);
    end = raised;
  }
  return ends[0] >= 0 && ends[1] >= 0;
}

bool fail(char* error, std::size_t size, const char* what, int number) {
  Text(error, size)
      .str("the helper cannot be started: ")
      .str(what)
      .str(" failed with errno ")
      .number(static_cast<std::uint64_t>(number));
  return false;
}

}  // namespace

// What the helper is started with. The children that start it share our memory.
struct HelperProcess::Start {
  char path[kPath];
  char words[3][kWord];
  char* arguments[16];
  int stream;
  pid_t pid;       // the helper's
  int may_start;   // a futex
  int exec_error;  // 0: it was started
  alignas(16) char starter_stack[kStack];
  alignas(16) char helper_stack[kStack];
};

// Runs in the helper's process. It has our descriptors, but none of our signal handlers may run
// here.
int HelperProcess::become_helper(void* argument) {
  auto& start = *static_cast<Start*>(argument);
  while (__atomic_load_n(&start.may_start, __ATOMIC_ACQUIRE) == 0)
    syscall(SYS_futex, &start.may_start, FUTEX_WAIT, 0, nullptr, nullptr, 0);
  // A session of its own shields it from Ctrl-C at the terminal.
  setsid();
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  // The stream is above the standard descriptors.
  dup2(null, 0);
  dup2(start.stream, 1);
  dup2(null, 2);
  // Kernels before 5.9 cannot; then it keeps descriptors without close-on-exec until it ends.
  syscall(SYS_close_range, 3u, ~0u, 0u);
  std::uint64_t none = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
  execve(start.path, start.arguments, environ);
  start.exec_error = errno;
  _exit(127);
}

int HelperProcess::start_helper(void* argument) {
  auto& start = *static_cast<Start*>(argument);
  clone(become_helper, start.helper_stack + kStack, CLONE_VM | CLONE_PARENT_SETTID, argument,
        &start.pid);
  _exit(0);
}

// Returns false if not even the first child could be created.
bool HelperProcess::run_starter(Start& start) {
  NoSignals quiet;
  // Without an exit signal it is not a child that other waits see.
  pid_t starter = clone(start_helper, start.starter_stack + kStack, CLONE_VM | CLONE_VFORK, &start);
  if (starter < 0) return false;
  while (waitpid(starter, nullptr, __WCLONE) < 0 && errno == EINTR) {
  }
  return start.pid > 0;
}

bool HelperProcess::start(const reachscan_options& options, char* error, std::size_t size,
                          const char* const* more) {
  start_ = static_cast<Start*>(map_unseen(sizeof(Start)));
  if (start_ == nullptr) return fail(error, size, "mmap", ENOMEM);
  if (!find_helper(start_->path)) {
    Text(error, size)
        .str("there is no program ")
        .str(start_->path)
        .str("; REACHSCAN_HELPER can name the helper");
    return false;
  }
  set_arguments(options, more, start_->path, start_->words, start_->arguments);
  int ends[2];
  if (!open_pipe(ends)) return fail(error, size, "pipe", errno);
  stream_ = ends[0];
  start_->stream = ends[1];
  bool started = run_starter(*start_);
  int problem = errno;
  close(ends[1]);
  if (!started) return fail(error, size, "clone", problem);
  pid_ = start_->pid;
  allow_to_trace();
  end_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  __atomic_store_n(&start_->may_start, 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, &start_->may_start, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  return true;
}

// Allows the helper, and only the helper, to trace us even where Yama restricts tracing or the
// process is not dumpable.
void HelperProcess::allow_to_trace() {
  dumpable_ = prctl(PR_GET_DUMPABLE);
  if (dumpable_ != 1) prctl(PR_SET_DUMPABLE, 1);
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(pid_), 0, 0, 0);
}

int HelperProcess::exec_error() const { return start_ != nullptr ? start_->exec_error : 0; }

bool HelperProcess::read(void* bytes, std::size_t count) {
  auto* at = static_cast<char*>(bytes);
  while (count > 0) {
    // A process forked meanwhile may hold the other end of the pipe open.
    pollfd events[2] = {{stream_, POLLIN, 0}, {end_, POLLIN, 0}};
    if (poll(events, end_ >= 0 ? 2 : 1, -1) < 0 && errno != EINTR) return false;
    if (events[0].revents == 0) {
      if (events[1].revents != 0) return false;
      continue;
    }
    ssize_t got = ::read(stream_, at, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

// Two helpers at once would get in each other's way.
void HelperProcess::wait_for_end() const {
  pollfd end{end_, POLLIN, 0};
  while (end_ >= 0 && poll(&end, 1, kHelperTimeoutMs) < 0 && errno == EINTR) {
  }
  // If this process inherits orphans, like process 1 of a container, it is its parent now.
  while (waitpid(pid_, nullptr, __WALL) < 0 && errno == EINTR) {
  }
}

HelperProcess::~HelperProcess() {
  // A helper that is still working ends when its output has no reader.
  if (stream_ >= 0) close(stream_);
  if (pid_ > 0) {
    wait_for_end();
    prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    if (dumpable_ != 1) prctl(PR_SET_DUMPABLE, 0);
  }
  if (end_ >= 0) close(end_);
  if (start_ != nullptr) unmap_unseen(start_, sizeof(Start));
}

}  // namespace reachscan::library
