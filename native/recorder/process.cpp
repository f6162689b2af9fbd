// Gets the recorder ready in its process: finds the allocator behind it, reads its settings.
#include "recorder/process.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include "arch/instructions.hpp"
#include "recorder/process_start.hpp"
#include "recorder/recorder.hpp"

// Its name tells the sweeper that this library is no allocator.
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
  if (parent_id() == settings.parent) permit_tracing(settings.parent);
  recorder.start(settings, program, start.stack_top(), start.auxiliary(AT_SYSINFO_EHDR));
}

// Says whether this process was recorded, and waits for an answer or for the end of who was asked.
void announce_to(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  for (std::size_t i = 0; path[i] != 0 && i + 1 < sizeof address.sun_path; ++i)
    address.sun_path[i] = path[i];
  long socket = arch::kernel_call(__NR_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (failed(socket)) return;
  std::uint32_t is_recorded = recorder.is_recording() ? 1 : 0;
  if (arch::kernel_call(__NR_connect, socket, as_word(&address), sizeof address) == 0 &&
      arch::kernel_call(__NR_sendto, socket, as_word(&is_recorded), sizeof is_recorded,
                        MSG_NOSIGNAL, 0, 0) == static_cast<long>(sizeof is_recorded)) {
    constexpr long kInterrupted = -4;  // EINTR
    char answer;
    while (arch::kernel_call(__NR_read, socket, as_word(&answer), 1) == kInterrupted) {
    }
  }
  close_file(socket);
}

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
  // Nothing that is called meanwhile calls a hook: this is another thread.
  while (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != kPrepared) arch::relax();
}

std::uint64_t next_function(const char* name) {
  std::uint64_t found = 0;
  if (!link_map.is_known()) return 0;
  link_map.each([&](const Image& image, const char*) {
    bool is_own = image.bias == own_base();
    if (found == 0 && !is_own) found = Symbols(image).find(name);
  });
  return found;
}

void announce_end() {
  static constinit std::uint32_t announced = 0;
  if (settings.notice[0] == 0 || parent_id() != settings.parent ||
      __atomic_exchange_n(&announced, 1, __ATOMIC_RELAXED) != 0)
    return;
  announce_to(settings.notice);
}

}  // namespace reachscan::recorder
