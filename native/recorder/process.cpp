// Prepares the recorder in its process: finds the next allocator, reads its settings.
#include "recorder/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "arch/instructions.hpp"
#include "recorder/process_start.hpp"
#include "recorder/recorder.hpp"

// This name tells the sweeper that the library is not an allocator.
extern "C" __attribute__((visibility("default"))) const std::uint32_t reachscan_recorder;
const std::uint32_t reachscan_recorder = reachscan::recorder::kLayout;

namespace reachscan::recorder {

namespace {

enum : std::uint32_t { kFresh, kPreparing, kPrepared };

constinit std::uint32_t state = kFresh;
constinit LinkMap link_map;
constinit Settings settings;

void prepare(char** environment) {
  ProcessStart start(environment);
  if (!start.is_known()) return;
  Image program = program_image(start.auxiliary(AT_PHDR), start.auxiliary(AT_PHNUM));
  link_map = LinkMap(program);
  const char* text = start.variable(kSettingsVariable);
  if (text == nullptr || !read_settings(text, settings)) return;
  permit_waiting_tracer();
  recorder.start(settings, link_map, start.stack_top(), start.auxiliary(AT_SYSINFO_EHDR));
}

// What is reported to the waiting process.
enum Notice : std::uint32_t { kEndsUnrecorded, kEndsRecorded, kAsksForReport };

// Returns the socket used for the report, or a failure.
long tell(const char* path, Notice notice, int flags) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  for (std::size_t i = 0; path[i] != 0 && i + 1 < sizeof address.sun_path; ++i)
    address.sun_path[i] = path[i];
  long socket = call(__NR_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  if (failed(socket)) return socket;
  long result = call(__NR_connect, socket, as_word(&address), sizeof address);
  if (result == 0)
    result = call(__NR_sendto, socket, as_word(&notice), sizeof notice, MSG_NOSIGNAL, 0, 0);
  if (!failed(result)) return socket;
  close_file(socket);
  return result;
}

constexpr int kMaxChecks = 3;  // at a stopped process, a second apart

// Checks the letter after the name, which may contain any characters. Returns false if it is
// unknown. Not inlined: words that earlier calls left in its buffers would be roots while the
// caller waits to be scanned.
[[gnu::noinline]] bool is_stopped(std::uint32_t pid) {
  char path[] = "/proc/0000000000/stat", text[128] = {};
  constexpr std::size_t kFirstDigit = sizeof "/proc/" - 1, kEnd = sizeof "/proc/0000000000" - 1;
  std::size_t digit = kEnd;
  for (std::uint32_t rest = pid; digit == kEnd || rest != 0; rest /= 10)
    path[--digit] = static_cast<char>('0' + rest % 10);
  __builtin_memmove(path + kFirstDigit, path + digit, sizeof path - digit);
  constexpr long kFromHere = -100;  // AT_FDCWD
  long file = call(__NR_openat, kFromHere, as_word(path), O_RDONLY | O_CLOEXEC);
  if (failed(file)) return false;
  long bytes = call(__NR_read, file, as_word(text), sizeof text - 1);
  close_file(file);
  if (failed(bytes)) return false;
  while (bytes > 0 && text[bytes] != ')') --bytes;
  return bytes > 0 && (text[bytes + 2] == 'T' || text[bytes + 2] == 't');
}

bool has_waiting_parent() { return settings.notice[0] != 0 && parent_id() == settings.parent; }

}  // namespace

void prepare_process(char** environment) {
  std::uint32_t found = kFresh;
  if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == kPrepared) return;
  if (__atomic_compare_exchange_n(&state, &found, kPreparing, false, __ATOMIC_ACQUIRE,
                                  __ATOMIC_ACQUIRE)) {
    prepare(environment);
    __atomic_store_n(&state, kPrepared, __ATOMIC_RELEASE);
    return;
  }
  // Nothing called meanwhile calls a hook, so this is another thread.
  while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != kPrepared) arch::relax();
}

std::uint64_t next_function(const char* name) {
  std::uint64_t found = 0;
  if (!link_map.is_known()) return 0;
  link_map.until([&](const Image& image) {
    if (image.bias != own_base()) found = Symbols(image).find(name);
    return found != 0;
  });
  return found;
}

// Waits for an answer, or for the end of the waiting process; but not for a stopped process (by a
// debugger or a terminal), which may never resume.
void announce_end() {
  permit_waiting_tracer();
  static constinit std::uint32_t announced = 0;
  if (!has_waiting_parent() || __atomic_exchange_n(&announced, 1, __ATOMIC_RELAXED) != 0) return;
  long socket = tell(settings.notice, recorder.is_recording() ? kEndsRecorded : kEndsUnrecorded, 0);
  if (failed(socket)) return;
  for (int stopped = 0; stopped < kMaxChecks;) {
    pollfd waits{static_cast<int>(socket), POLLIN, 0};
    timespec second{1, 0};
    long happened = call(__NR_ppoll, as_word(&waits), 1, as_word(&second), 0, 0);
    if (happened > 0) break;
    if (happened == 0) stopped = is_stopped(settings.parent) ? stopped + 1 : 0;
  }
  close_file(socket);
}

void permit_waiting_tracer() {
  if (settings.parent != 0 && parent_id() == settings.parent) permit_tracing(settings.parent);
}

int report_signal() {
  return settings.signal != 0 && has_waiting_parent() ? static_cast<int>(settings.signal) : 0;
}

// Requests that arrive faster than they are answered are not waited for.
void request_report(int) {
  if (!has_waiting_parent()) return;
  permit_waiting_tracer();
  long socket = tell(settings.notice, kAsksForReport, SOCK_NONBLOCK);
  if (!failed(socket)) close_file(socket);
}

}  // namespace reachscan::recorder
