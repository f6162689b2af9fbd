// Scans and prints the result; also libmemunreachable's calls that do nothing else.
#include "library/print.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "library/annotate.hpp"
#include "library/entry.hpp"
#include "library/text.hpp"

namespace reachscan::library {
namespace {

constexpr std::size_t kLine = 512;

void write_all(int fd, const char* text, std::size_t length) {
  while (length > 0) {
    ssize_t written = write(fd, text, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0 && fd == STDERR_FILENO) return;                  // it is closed
    if (written <= 0) return write_all(STDERR_FILENO, text, length);  // the disk is full
    text += written;
    length -= static_cast<std::size_t>(written);
  }
}

void print_error(const reachscan_report& report, int fd) {
  char line[kLine];
  Text text(line, sizeof line);
  text.str("reachscan: ").str(report.error).put('\n');
  write_all(fd, line, text.length() < sizeof line ? text.length() : sizeof line - 1);
}

void print_report(const reachscan_report& report, bool contents, int fd) {
  std::size_t length = reachscan_report_text(&report, contents, nullptr, 0);
  auto* text = static_cast<char*>(map_unseen(length + 1));
  if (text != nullptr) {
    reachscan_report_text(&report, contents, text, length + 1);
    write_all(fd, text, length);
    unmap_unseen(text, length + 1);
  }
  char line[kLine];
  Text summary(line, sizeof line);
  summary.number(report.leak_bytes).str(" bytes in ").count(report.num_leaks, "allocation");
  summary.str(" unreachable out of ").number(report.allocation_bytes).str(" bytes in ");
  summary.count(report.num_allocations, "allocation").put('\n');
  write_all(fd, line, summary.length());
}

}  // namespace

int check_and_print(const reachscan_options& options, bool contents, int fd, Told told) {
  reachscan_report report;
  int result = reachscan_check(&options, &report);
  if (result == REACHSCAN_FAILED) {
    print_error(report, fd);
  } else {
    if (result == REACHSCAN_LEAKS || told == Told::kAlways) print_report(report, contents, fd);
    reachscan_report_free(&report);
  }
  return result;
}

}  // namespace reachscan::library

using namespace reachscan::library;

bool LogUnreachableMemory(bool log_contents, size_t limit) {
  auto log = [](const void* contents, void* at_most) {
    reachscan_options options{};
    options.limit = reinterpret_cast<size_t>(at_most);
    int result = check_and_print(options, contents != nullptr, STDERR_FILENO, Told::kAlways);
    return result != REACHSCAN_FAILED;
  };
  return enter<bool>(log, log_contents ? "" : nullptr, reinterpret_cast<void*>(limit));
}

bool NoLeaks() {
  auto look = [](const void*, void*) {
    reachscan_options options{};
    reachscan_report report;
    int result = reachscan_check(&options, &report);
    reachscan_report_free(&report);
    return result == REACHSCAN_NO_LEAKS;
  };
  return enter<bool>(look, nullptr, nullptr);
}
