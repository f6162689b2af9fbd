// Scans the own process once, and makes the report.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "arch/scratch_registers.hpp"
#include "library/annotate.hpp"
#include "library/entry.hpp"
#include "library/result_reader.hpp"
#include "library/settings.hpp"
#include "library/text.hpp"

namespace reachscan::library {
namespace {

// More stack than the calls below the scan need.
constexpr std::size_t kOwnStack = 2048;

// The process in which a scan is running: a fork during one does not inherit it.
std::atomic<pid_t> scanning{0};

// A head of a leaked structure, with its descendants and with others like it.
struct Head {
  std::size_t leak;
  std::uint64_t below, below_bytes;
  std::uint64_t similar, similar_bytes;
  std::uint64_t similar_below, similar_below_bytes;
  std::uint64_t total;
};

void add_to_totals(const Leak& leak, reachscan_report& report) {
  (leak.is_possible ? report.possible_leaks : report.num_leaks) += 1;
  (leak.is_possible ? report.possible_bytes : report.leak_bytes) += leak.size;
}

// Collects the leaks to list, and the totals of all.
bool find_heads(ResultReader& result, bool list_possible, UnseenArray<Head>& heads,
                reachscan_report& report) {
  for (std::size_t i = 0; i < result.leaks.size(); ++i) {
    const Leak& leak = result.leaks[i];
    add_to_totals(leak, report);
    if (leak.is_possible && !list_possible) continue;
    if (leak.is_direct) {
      if (!heads.push({i, 0, 0, 0, 0, 0, 0, leak.size})) return false;
    } else if (heads.size() > 0) {
      Head& head = heads.back();
      head.below += 1;
      head.below_bytes += leak.size;
      head.total += leak.size;
    }
  }
  return true;
}

// Adds heads that were allocated by one stack to the first of them, the possible ones apart.
// Returns how many heads remain.
std::size_t fold(ResultReader& result, UnseenArray<Head>& heads) {
  auto stack = [&](const Head& head) {
    return std::make_pair(result.leaks[head.leak].node, result.leaks[head.leak].is_possible);
  };
  std::sort(heads.begin(), heads.end(), [&](const Head& a, const Head& b) {
    return std::make_pair(stack(a), a.leak) < std::make_pair(stack(b), b.leak);
  });
  std::size_t kept = 0;
  for (const Head& head : heads) {
    if (kept == 0 || stack(head).first == 0 || stack(heads[kept - 1]) != stack(head)) {
      heads[kept++] = head;
      continue;
    }
    Head& first = heads[kept - 1];
    first.similar += 1;
    first.similar_bytes += result.leaks[head.leak].size;
    first.similar_below += head.below;
    first.similar_below_bytes += head.below_bytes;
    first.total += head.total;
  }
  return kept;
}

void fill_stack(ResultReader& result, std::uint32_t number, reachscan_leak& leak) {
  while (number != 0 && leak.backtrace.num_frames < REACHSCAN_FRAMES) {
    const Node* node =
        std::lower_bound(result.nodes.begin(), result.nodes.end(), number,
                         [](const Node& n, std::uint32_t wanted) { return n.number < wanted; });
    if (node == result.nodes.end() || node->number != number) return;
    leak.backtrace.frames[leak.backtrace.num_frames++] = node->pc;
    number = node->parent;
  }
}

void fill(ResultReader& result, const Head& head, reachscan_leak& leak) {
  const Leak& from = result.leaks[head.leak];
  leak.begin = from.address;
  leak.size = from.size;
  leak.referenced_count = head.below;
  leak.referenced_size = head.below_bytes;
  leak.similar_count = head.similar;
  leak.similar_size = head.similar_bytes;
  leak.similar_referenced_count = head.similar_below;
  leak.similar_referenced_size = head.similar_below_bytes;
  leak.total_size = head.total;
  leak.is_possible = from.is_possible;
  std::memcpy(leak.contents, from.contents, sizeof leak.contents);
  fill_stack(result, from.node, leak);
}

bool no_memory(reachscan_report& report) {
  Text(report.error, sizeof report.error).str("there is no memory for the report");
  return false;
}

bool make_report(ResultReader& result, const reachscan_options& options, reachscan_report& report) {
  UnseenArray<Head> heads;
  if (!find_heads(result, options.list_possible, heads, report)) return no_memory(report);
  std::size_t count = fold(result, heads);
  report.num_allocations = result.allocations;
  report.allocation_bytes = result.bytes;
  report.pause_ns = result.pause_ns;
  report.listed = std::min(count, options.limit);
  if (report.listed == 0) return true;
  std::partial_sort(heads.begin(), heads.begin() + report.listed, heads.begin() + count,
                    [&](const Head& a, const Head& b) {
                      bool is_b_possible = result.leaks[b.leak].is_possible;
                      if (result.leaks[a.leak].is_possible != is_b_possible) return is_b_possible;
                      return a.total != b.total ? a.total > b.total : a.leak < b.leak;
                    });
  auto* leaks = static_cast<reachscan_leak*>(map_unseen(report.listed * sizeof(reachscan_leak)));
  if (leaks == nullptr) return no_memory(report);
  for (std::size_t i = 0; i < report.listed; ++i) fill(result, heads[i], leaks[i]);
  report.leaks = leaks;
  return true;
}

// Reads the answer in a frame of its own, since addresses of leaks pass through it.
[[gnu::noinline]] bool read_report(HelperProcess& helper, const reachscan_options& options,
                                   reachscan_report& report) {
  ResultReader result(helper, report.error, sizeof report.error);
  return result.read() && make_report(result, options, report);
}

// Hides what earlier calls have left of addresses on the stack, from here up to the program's part,
// and below: it must not keep anything alive.
class HiddenFrames {
 public:
  HiddenFrames() {
    auto low = (reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) - kOwnStack) & ~15ull;
    start_ = reinterpret_cast<const void*>(low);
    auto end = reinterpret_cast<std::uintptr_t>(end_of_program());
    noted_ = annotate(Kind::kUnseen, start_, end - low);
  }
  HiddenFrames(const HiddenFrames&) = delete;
  HiddenFrames& operator=(const HiddenFrames&) = delete;
  ~HiddenFrames() { forget(Kind::kUnseen, start_); }

  bool noted() const { return noted_; }

 private:
  const void* start_;
  bool noted_;
};

bool scan(const reachscan_options& options, reachscan_report& report) {
  HiddenFrames frames;
  if (!frames.noted()) return no_memory(report);
  // Registers that are dead in the caller must not, either.
  arch::clear_scratch_registers();
  HelperProcess helper;
  return helper.start(options, report.error, sizeof report.error) &&
         read_report(helper, options, report);
}

int check(const reachscan_options* options, reachscan_report* report) {
  int before = errno;
  *report = {};
  pid_t self = getpid(), other = scanning.load();
  if (other == self || !scanning.compare_exchange_strong(other, self)) {
    Text(report->error, sizeof report->error).str("another scan of the process is under way");
    return REACHSCAN_FAILED;
  }
  bool done = scan(options != nullptr ? *options : settings().options, *report);
  scanning = 0;
  errno = before;
  if (!done) return REACHSCAN_FAILED;
  return report->num_leaks > 0 ? REACHSCAN_LEAKS : REACHSCAN_NO_LEAKS;
}

}  // namespace
}  // namespace reachscan::library

using namespace reachscan::library;

int reachscan_check(const reachscan_options* options, reachscan_report* report) {
  return enter<int>(
      [](const void* a, void* b) {
        return check(static_cast<const reachscan_options*>(a), static_cast<reachscan_report*>(b));
      },
      options, report);
}

void reachscan_report_free(reachscan_report* report) {
  if (report->leaks != nullptr)
    unmap_unseen(const_cast<reachscan_leak*>(report->leaks),
                 report->listed * sizeof(reachscan_leak));
  report->leaks = nullptr;
  report->listed = 0;
}

void* reachscan_unseen_alloc(size_t size) { return map_unseen(size); }

void reachscan_unseen_free(void* memory, size_t size) { unmap_unseen(memory, size); }

int reachscan_register_root_region(const void* start, size_t size) {
  if (annotate(Kind::kRoot, start, size)) return 0;
  errno = ENOMEM;
  return -1;
}

int reachscan_unregister_root_region(const void* start, size_t) {
  if (forget(Kind::kRoot, start)) return 0;
  errno = EINVAL;
  return -1;
}
