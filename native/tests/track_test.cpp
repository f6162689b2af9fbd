// A copy that was read ahead from a running program contains what is there when it is stopped,
// whatever the program has done to its memory in between.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "check.hpp"
#include "helper/capture/copy.hpp"
#include "helper/capture/write_tracker.hpp"
#include "helper/target/process.hpp"

using namespace reachscan::helper;
using reachscan::tests::fail;

namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMiB = 1 << 20;
// Both are free in the child, and remain so: it is a fork of this program.
char* const kMemory = reinterpret_cast<char*>(0x200000000000);
char* const kElsewhere = reinterpret_cast<char*>(0x300000000000);
constexpr std::uint64_t kUsual = 8 * kMiB;

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

using Act = std::function<void()>;

// A child that prepares its memory, and changes it on command.
class Program {
 public:
  Program(const Act& begin, const Act& change) {
    // The code that waits for the copy's process expects it to be blocked.
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_ended, nullptr);
    if (pipe(to_child_) != 0 || pipe(from_child_) != 0) fail(__FILE__, __LINE__, "no pipe");
    pid_ = fork();
    if (pid_ == 0) run(begin, change);
    read(from_child_[0], &descriptor_, sizeof descriptor_);
  }
  ~Program() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void change() const {
    int done = 0;
    write(to_child_[1], "", 1);
    CHECK(read(from_child_[0], &done, sizeof done) == sizeof done);
  }

  // Returns its userfaultfd as a descriptor of ours.
  int take_descriptor() const {
    int process = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    int ours = static_cast<int>(syscall(SYS_pidfd_getfd, process, descriptor_, 0));
    close(process);
    return ours;
  }

  // In KiB.
  long page_tables() const { return std::stol(status_field(pid_, pid_, "VmPTE")); }

  pid_t pid() const { return pid_; }

 private:
  [[noreturn]] void run(const Act& begin, const Act& change) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    begin();
    int descriptor = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1));
    write(from_child_[1], &descriptor, sizeof descriptor);
    char told;
    read(to_child_[0], &told, 1);
    change();
    write(from_child_[1], &descriptor, sizeof descriptor);
    for (;;) pause();
  }

  int to_child_[2], from_child_[2];
  int descriptor_ = -1;
  pid_t pid_;
};

bool is_ours(const MapEntry& entry) {
  auto start = reinterpret_cast<char*>(entry.start);
  return (start >= kMemory && start < kMemory + (1ull << 41)) ||
         (start >= kElsewhere && start < kElsewhere + (1ull << 41));
}

void expect_same(const Program& program, const Memory& memory, const Clone& clone) {
  std::vector<char> there(kMiB), here(kMiB);
  std::uint64_t compared = 0;
  for (const MapEntry& entry : read_mappings(program.pid())) {
    if (!is_ours(entry) || entry.end - entry.start > 4096 * kMiB) continue;
    for (std::uint64_t at = entry.start; at < entry.end; at += kMiB) {
      std::uint64_t length = std::min(kMiB, entry.end - at);
      CHECK(memory.try_read(at, there.data(), length));
      CHECK(clone.memory().try_read(at, here.data(), length));
      for (std::uint64_t i = 0; i < length; i += kPage)
        if (std::memcmp(&there[i], &here[i], std::min(kPage, length - i)) != 0)
          fail(__FILE__, __LINE__, "page " + std::to_string((at + i - entry.start) / kPage));
      compared += length;
    }
  }
  CHECK(compared > 0);
}

// Calls use(tracker). Returns false if this kernel cannot track.
template <typename Use>
bool with_tracker(const Program& program, Use use) {
  try {
    WriteTracker tracker(program.pid(), program.take_descriptor());
    use(tracker);
    return true;
  } catch (const Failure& failure) {
    if (failure.code != Code::kUnsupportedMethod) throw;
    std::fprintf(stderr, "SKIPPED: %s\n", failure.what());
    return false;
  }
}

bool read_ahead_and_capture(const Program& program, MemoryCopy& copy) {
  return with_tracker(program, [&](WriteTracker& tracker) {
    copy.read_ahead(tracker);
    program.change();
    copy.capture();
  });
}

// Covers the memory that is mapped at the start.
bool watch_and_take_written(const Program& program, std::vector<AddressRange>& written) {
  return with_tracker(program, [&](WriteTracker& tracker) {
    for (const MapEntry& entry : read_mappings(program.pid()))
      if (is_ours(entry)) CHECK(tracker.watch(entry));
    program.change();
    auto start = reinterpret_cast<std::uint64_t>(kMemory);
    CHECK(tracker.take_written(start, start + kUsual, written));
  });
}

void expect_exact_copy(const Act& begin, const Act& change) {
  Program program(begin, change);
  Memory memory(program.pid());
  MemoryCopy copy(program.pid(), memory);
  if (!read_ahead_and_capture(program, copy)) return;
  copy.complete();
  expect_same(program, memory, *copy.build());
}

void map(std::uint64_t length, int advice = MADV_NOHUGEPAGE, char* at = kMemory) {
  void* memory = mmap(at, length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (memory != at || madvise(at, length, advice) != 0) std::_Exit(1);
}

void fill(char* at = kMemory, std::uint64_t length = kUsual, char value = 1) {
  for (std::uint64_t i = 0; i < length; i += kPage) std::memset(at + i, value, kPage);
}

void map_and_fill(int advice = MADV_NOHUGEPAGE) {
  map(kUsual, advice);
  fill();
}

void drop(std::uint64_t offset, std::uint64_t length) {
  if (madvise(kMemory + offset, length, MADV_DONTNEED) != 0) std::_Exit(1);
}

}  // namespace

CASE(nothing_happens) {
  expect_exact_copy([] { map_and_fill(); }, [] {});
}

CASE(one_page_is_written) {
  expect_exact_copy([] { map_and_fill(); }, [] { kMemory[5 * kPage] = 2; });
}

CASE(one_page_is_dropped) {
  expect_exact_copy([] { map_and_fill(); }, [] { drop(600 * kPage, kPage); });
}

CASE(whole_page_tables_are_dropped) {
  expect_exact_copy([] { map_and_fill(); }, [] { drop(2 * kMiB, 4 * kMiB); });
}

CASE(everything_is_dropped_in_memory_that_begins_amid_a_page_table) {
  expect_exact_copy(
      [] {
        map(kUsual, MADV_NOHUGEPAGE, kMemory + 5 * kPage);
        fill(kMemory + 5 * kPage);
      },
      [] { drop(5 * kPage, kUsual); });
}

CASE(a_page_table_is_dropped_and_one_of_its_pages_written) {
  expect_exact_copy([] { map_and_fill(); },
                    [] {
                      drop(2 * kMiB, 4 * kMiB);
                      kMemory[3 * kMiB] = 2;
                    });
}

CASE(memory_is_used_for_the_first_time) {
  expect_exact_copy(
      [] {
        map(kUsual);
        kMemory[0] = 1;
      },
      [] { kMemory[kPage] = kMemory[7 * kMiB] = 2; });
}

CASE(a_huge_page_is_written) {
  expect_exact_copy([] { map_and_fill(MADV_HUGEPAGE); }, [] { kMemory[5 * kPage] = 2; });
}

CASE(huge_pages_are_dropped) {
  expect_exact_copy([] { map_and_fill(MADV_HUGEPAGE); }, [] { drop(2 * kMiB, 4 * kMiB); });
}

CASE(a_huge_page_is_dropped_and_used_again) {
  expect_exact_copy([] { map_and_fill(MADV_HUGEPAGE); },
                    [] {
                      drop(2 * kMiB, 2 * kMiB);
                      kMemory[3 * kMiB] = 2;
                    });
}

CASE(a_huge_page_is_split) {
  expect_exact_copy([] { map_and_fill(MADV_HUGEPAGE); }, [] { drop(6 * kMiB, 10 * kPage); });
}

CASE(small_pages_become_a_huge_one) {
  constexpr int kCollapse = 25;  // Linux 6.1; older kernels only see them written
  expect_exact_copy([] { map_and_fill(); },
                    [] {
                      fill(kMemory, 2 * kMiB, 2);
                      madvise(kMemory, kUsual, MADV_HUGEPAGE);
                      madvise(kMemory, 2 * kMiB, kCollapse);
                    });
}

CASE(memory_is_freed_lazily_and_reclaimed) {
  expect_exact_copy([] { map_and_fill(); },
                    [] {
                      madvise(kMemory, 4 * kMiB, MADV_FREE);
                      madvise(kMemory, 4 * kMiB, MADV_PAGEOUT);
                    });
}

CASE(memory_is_moved_away) {
  expect_exact_copy([] { map_and_fill(); },
                    [] {
                      mremap(kMemory + 2 * kMiB, 4 * kMiB, 4 * kMiB, MREMAP_MAYMOVE | MREMAP_FIXED,
                             kElsewhere);
                    });
}

CASE(pages_are_moved_away_and_the_mapping_stays) {
  expect_exact_copy([] { map_and_fill(); },
                    [] {
                      mremap(kMemory + 2 * kMiB, 4 * kMiB, 4 * kMiB,
                             MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, kElsewhere);
                    });
}

CASE(other_memory_takes_the_place) {
  expect_exact_copy([] { map_and_fill(); },
                    [] {
                      munmap(kMemory + 2 * kMiB, 4 * kMiB);
                      map(2 * kMiB, MADV_NOHUGEPAGE, kMemory + 3 * kMiB);
                      fill(kMemory + 3 * kMiB, kMiB, 2);
                    });
}

// As when a heap shrinks and grows again during the read-ahead.
CASE(what_is_written_before_memory_that_is_not_tracked_is_told) {
  Program program([] { map_and_fill(); },
                  [] {
                    kMemory[kPage] = 2;
                    munmap(kMemory + kMiB, kUsual - kMiB);
                    map(kMiB, MADV_NOHUGEPAGE, kMemory + kMiB);
                  });
  std::vector<AddressRange> written;
  if (!watch_and_take_written(program, written)) return;
  CHECK_EQ(written.size(), 1u);
  CHECK_EQ(written[0].start, reinterpret_cast<std::uint64_t>(kMemory + kPage));
  CHECK_EQ(written[0].end, written[0].start + kPage);
}

CASE(memory_grows) {
  expect_exact_copy([] { map_and_fill(); },
                    [] {
                      mremap(kMemory, kUsual, 2 * kUsual, 0);
                      kMemory[kUsual] = 2;
                    });
}

CASE(memory_is_protected) {
  expect_exact_copy([] { map_and_fill(); },
                    [] {
                      kMemory[3 * kMiB] = 2;
                      mprotect(kMemory + 2 * kMiB, 4 * kMiB, PROT_NONE);
                      mprotect(kMemory + 7 * kMiB, kPage, PROT_READ);
                    });
}

CASE(the_program_forks) {
  expect_exact_copy([] { map_and_fill(); },
                    [] {
                      pid_t child = fork();
                      if (child == 0) {
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        kMemory[0] = 3;
                        for (;;) pause();
                      }
                      kMemory[kPage] = 2;
                    });
}

// Enough to be split between threads.
CASE(scattered_pages_of_large_memory) {
  constexpr std::uint64_t kLarge = 1024 * kMiB;
  expect_exact_copy(
      [] {
        map(kLarge);
        for (std::uint64_t at = 0; at < kLarge; at += 2 * kMiB) fill(kMemory + at, 2 * kPage);
      },
      [] {
        for (std::uint64_t at = 0; at < kLarge; at += 14 * kMiB) kMemory[at] = 2;
        for (std::uint64_t at = 0; at < kLarge; at += 22 * kMiB) drop(at, 2 * kMiB);
        for (std::uint64_t at = kMiB; at < kLarge; at += 34 * kMiB) kMemory[at] = 3;
      });
}

// More than the kernel reads at once, which is 2 GiB less a page.
CASE(memory_of_more_than_two_gibibytes) {
  constexpr std::uint64_t kLarge = 2064 * kMiB;
  if (static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * kPage < 3 * kLarge) {
    std::fprintf(stderr, "SKIPPED: needs a machine with 6 GiB of memory\n");
    return;
  }
  expect_exact_copy(
      [] {
        map(kLarge, MADV_HUGEPAGE);
        for (std::uint64_t at = 0; at < kLarge; at += kPage) kMemory[at] = 1;
      },
      [] {});
}

// Tracking must not make the kernel create page tables for memory that was only reserved.
CASE(reserved_memory_costs_the_program_nothing) {
  constexpr std::uint64_t kReserved = 1ull << 40;
  Program program(
      [] {
        map(kReserved);
        kMemory[0] = 1;
      },
      [] { kMemory[kPage] = kMemory[kReserved / 2] = 2; });
  long before = program.page_tables();
  Memory memory(program.pid());
  MemoryCopy copy(program.pid(), memory);
  if (!read_ahead_and_capture(program, copy)) return;
  CHECK(program.page_tables() - before < 1024);
  copy.complete();
  std::unique_ptr<Clone> clone = copy.build();
  for (std::uint64_t offset : {std::uint64_t{0}, kPage, kReserved / 2}) {
    char there = 0, here = 0;
    memory.try_read(reinterpret_cast<std::uint64_t>(kMemory) + offset, &there, 1);
    clone->memory().try_read(reinterpret_cast<std::uint64_t>(kMemory) + offset, &here, 1);
    CHECK_EQ(static_cast<int>(here), static_cast<int>(there));
  }
}
