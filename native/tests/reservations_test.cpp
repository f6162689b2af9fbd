// Where the kernel cannot list pages quickly (before Linux 6.7), mostly unused mappings are
// examined in advance. A system call filter simulates such a kernel.
#include "helper/target/reservations.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "check.hpp"
#include "wire/protocol.hpp"

using namespace reachscan::helper;
using reachscan::tests::fail;

namespace {

constexpr std::uint64_t kPage = 4096, kTable = 2 << 20, kGiB = 1 << 30;
constexpr std::uint64_t kReserved = 64 * kGiB;

void refuse_page_scans() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xc0606610, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter = {sizeof program / sizeof program[0], program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    fail(__FILE__, __LINE__, "no filter");
}

// A program with reserved memory. It is a separate process, since ours may get page tables any
// time.
class Program {
 public:
  // Terabytes would work too, but take seconds.
  Program() {
    char* memory = static_cast<char*>(mmap(nullptr, kReserved, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED || pipe(orders_) != 0 || pipe(answers_) != 0)
      fail(__FILE__, __LINE__, "no memory");
    madvise(memory, kReserved, MADV_NOHUGEPAGE);
    entry.start = reinterpret_cast<std::uint64_t>(memory);
    entry.end = entry.start + kReserved;
    entry.perms = reachscan::wire::kRead | reachscan::wire::kWrite;
    entry.backing = Backing::kNothing;
    pid = fork();
    if (pid == 0) obey();
    // From now on, it gets page tables only on command.
    static char anything;
    touch(reinterpret_cast<std::uint64_t>(&anything));
  }
  ~Program() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }

  void touch(std::uint64_t address) {
    if (write(orders_[1], &address, sizeof address) != sizeof address ||
        ::read(answers_[0], &address, sizeof address) != sizeof address)
      fail(__FILE__, __LINE__, "the program has ended");
  }

  pid_t pid;
  MapEntry entry{};

 private:
  [[noreturn]] void obey() {
    close(orders_[1]);  // that of the test is the only one: it ends with the test
    for (std::uint64_t address; ::read(orders_[0], &address, sizeof address) == sizeof address;) {
      *reinterpret_cast<volatile char*>(address) = 1;
      if (write(answers_[1], &address, sizeof address) != sizeof address) break;
    }
    _exit(0);
  }

  int orders_[2], answers_[2];
};

std::uint64_t total(const std::vector<AddressRange>& stretches) {
  std::uint64_t bytes = 0;
  for (const AddressRange& stretch : stretches) bytes += stretch.end - stretch.start;
  return bytes;
}

}  // namespace

CASE(unused_parts_are_not_looked_at_again) {
  refuse_page_scans();
  Program program;
  const MapEntry& entry = program.entry;
  std::uint64_t first = entry.start + 5 * kGiB, second = entry.start + 40 * kGiB;
  program.touch(first);
  program.touch(second);
  Reservations reservations(program.pid, PageMap(program.pid), {entry});
  CHECK(total(reservations.used_parts(entry)) <= 4 * kTable);
  // Pages may appear where page tables exist.
  program.touch(second + kPage);
  CHECK_EQ(reservations.maybe_used_since(), 0u);
  std::vector<AddressRange> pages = present_pages(PageMap(program.pid, &reservations), entry);
  CHECK_EQ(pages.size(), 2u);
  CHECK_EQ(pages[0].start, first);
  CHECK_EQ(pages[1].start, second);
  CHECK_EQ(pages[1].end, second + 2 * kPage);
}

CASE(memory_that_came_into_use_is_noticed) {
  refuse_page_scans();
  Program program;
  Reservations reservations(program.pid, PageMap(program.pid), {program.entry});
  CHECK_EQ(reservations.maybe_used_since(), 0u);
  program.touch(program.entry.start + 20 * kGiB);
  CHECK(reservations.maybe_used_since() >= kTable);
}

CASE(what_is_in_use_is_no_reservation) {
  refuse_page_scans();
  Program program;
  MapEntry entry = program.entry;
  entry.end = entry.start + kGiB;
  for (std::uint64_t at = entry.start; at < entry.end; at += 4 * kTable) program.touch(at);
  Reservations reservations(program.pid, PageMap(program.pid), {entry});
  CHECK_EQ(total(reservations.used_parts(entry)), kGiB);
}

CASE(a_newer_kernel_needs_none_of_this) {
  Program program;
  PageMap map(program.pid);
  if (!map.first_page(program.entry).has_value()) {
    std::fprintf(stderr, "skipped: this kernel cannot list pages at once\n");
    return;
  }
  Reservations reservations(program.pid, map, {program.entry});
  CHECK_EQ(total(reservations.used_parts(program.entry)), kReserved);
}
