// libreachscan for C++: the calls of libmemunreachable, with its names, fields and text.
// reachscan.h has all other calls.
#ifndef REACHSCAN_HPP
#define REACHSCAN_HPP

#include <reachscan.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace reachscan {

// Allocates memory that scans do not search: an address in it does not hide a leak.
template <typename T>
struct UnseenAllocator {
  using value_type = T;

  UnseenAllocator() = default;
  template <typename Other>
  UnseenAllocator(const UnseenAllocator<Other>&) noexcept {}

  T* allocate(std::size_t count) {
    void* memory =
        count <= SIZE_MAX / sizeof(T) ? reachscan_unseen_alloc(count * sizeof(T)) : nullptr;
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    reachscan_unseen_free(memory, count * sizeof(T));
  }

  template <typename Other>
  bool operator==(const UnseenAllocator<Other>&) const noexcept {
    return true;
  }
  template <typename Other>
  bool operator!=(const UnseenAllocator<Other>&) const noexcept {
    return false;
  }
};

}  // namespace reachscan

namespace android {

struct Leak : reachscan_leak {
  Leak() = default;
  explicit Leak(const reachscan_leak& leak) : reachscan_leak(leak) {}

  std::string ToString(bool log_contents) const {
    std::string text(reachscan_leak_text(this, log_contents, nullptr, 0) + 1, 0);
    reachscan_leak_text(this, log_contents, &text[0], text.size());
    text.pop_back();
    return text;
  }
};

struct UnreachableMemoryInfo {
  std::vector<Leak, reachscan::UnseenAllocator<Leak>> leaks;
  std::size_t num_leaks = 0;
  std::size_t leak_bytes = 0;
  std::size_t num_allocations = 0;
  std::size_t allocation_bytes = 0;
  std::size_t version = 0;  // Must be 0
  std::size_t reserved[8] = {};

  std::string ToString(bool log_contents) const {
    reachscan_report totals{};
    totals.num_leaks = num_leaks;
    totals.leak_bytes = leak_bytes;
    std::string text(reachscan_report_text(&totals, log_contents, nullptr, 0) + 1, 0);
    reachscan_report_text(&totals, log_contents, &text[0], text.size());
    text.pop_back();
    for (const Leak& leak : leaks) text += leak.ToString(log_contents) + "\n";
    return text;
  }
};

namespace internal {

// Stores the scan's error in `error` unless it is null.
inline bool GetUnreachableMemory(UnreachableMemoryInfo& info, std::size_t limit,
                                 std::string* error) {
  if (info.version > 0) {
    if (error != nullptr) *error = "its version is not supported";
    return false;
  }
  reachscan_options options{};
  options.limit = limit;
  reachscan_report report;
  if (reachscan_check(&options, &report) == REACHSCAN_FAILED) {
    if (error != nullptr) *error = report.error;
    return false;
  }
  info.leaks.clear();
  info.leaks.reserve(report.listed);
  for (std::size_t i = 0; i < report.listed; ++i) info.leaks.emplace_back(report.leaks[i]);
  info.num_leaks = report.num_leaks;
  info.leak_bytes = report.leak_bytes;
  info.num_allocations = report.num_allocations;
  info.allocation_bytes = report.allocation_bytes;
  reachscan_report_free(&report);
  return true;
}

}  // namespace internal

// Returns false if the process could not be scanned.
inline bool GetUnreachableMemory(UnreachableMemoryInfo& info, std::size_t limit = 100) {
  return internal::GetUnreachableMemory(info, limit, nullptr);
}

inline std::string GetUnreachableMemoryString(bool log_contents = false, std::size_t limit = 100) {
  UnreachableMemoryInfo info;
  std::string error;
  if (!internal::GetUnreachableMemory(info, limit, &error))
    return "Failed to get unreachable memory: " + error + "\n";
  return info.ToString(log_contents);
}

}  // namespace android

#endif
