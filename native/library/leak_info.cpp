// malloc_debug's list of allocations and their stacks, from the tables of the recorder in this
// process, whoever started it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "library/annotate.hpp"
#include "library/include/reachscan.h"
#include "recorder/tables.hpp"

namespace reachscan::library {
namespace {

using recorder::Tables;

// The relevant part of a line of /proc/self/maps.
struct Mapping {
  std::uint64_t start = 0, end = 0;
  bool is_usable = false;     // readable, writable and private
  bool is_forbidden = false;  // no access at all
};

// Reads /proc/self/maps without heap memory.
class Mappings {
 public:
  Mappings() : file_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;
  ~Mappings() {
    if (file_ >= 0) close(file_);
  }

  // Returns false at the end.
  bool next(Mapping& mapping) {
    mapping = {};
    char c = hexadecimal(mapping.start);
    if (c != '-') return false;
    hexadecimal(mapping.end);
    char permissions[4] = {};
    for (char& permission : permissions) permission = get();
    mapping.is_usable = std::memcmp(permissions, "rw-p", 4) == 0;
    mapping.is_forbidden = std::memcmp(permissions, "---p", 4) == 0;
    while (c != '\n' && c != 0) c = get();
    return true;
  }

 private:
  // Returns the character after the number; 0 at the end.
  char hexadecimal(std::uint64_t& number) {
    for (;;) {
      char c = get();
      if (c >= '0' && c <= '9')
        number = number << 4 | static_cast<std::uint64_t>(c - '0');
      else if (c >= 'a' && c <= 'f')
        number = number << 4 | static_cast<std::uint64_t>(c - 'a' + 10);
      else
        return c;
    }
  }

  char get() {
    if (at_ == length_) {
      length_ = file_ < 0 ? 0 : ::read(file_, buffer_, sizeof buffer_);
      at_ = 0;
    }
    return at_ < length_ ? buffer_[at_++] : '\0';
  }

  int file_;
  ssize_t at_ = 0, length_ = 0;
  char buffer_[4096];
};

// Returns null if this process is not being recorded. The tables are between guard pages; a forked
// child that records nothing still has its parent's.
recorder::Header* find_tables() {
  Mappings mappings;
  Mapping before, mapping;
  while (mappings.next(mapping)) {
    auto* header = reinterpret_cast<recorder::Header*>(mapping.start);
    if (mapping.is_usable && before.is_forbidden && before.end == mapping.start &&
        recorder::is_valid(*header, mapping.end - mapping.start) &&
        header->pid == static_cast<std::uint32_t>(getpid()))
      return header;
    before = mapping;
  }
  return nullptr;
}

// Blocks of one size and stack.
struct Group {
  std::uint64_t size;
  std::uint64_t blocks;
  std::uint32_t node;
};

// The records as malloc_debug lays them out: size, number, addresses.
class LeakInfo {
 public:
  explicit LeakInfo(const Tables& tables) : tables_(tables) {}

  // Returns false if there is no memory.
  bool collect() {
    bool fitted = true;
    tables_.each([&](const recorder::Allocation& a) {
      fitted = fitted && groups_.push({a.size, 1, a.node});
    });
    merge([](const Group& a, const Group& b) {
      return a.size != b.size ? a.size > b.size : a.node < b.node;
    });
    // Two nodes may represent one stack.
    merge([this](const Group& a, const Group& b) { return comes_before(a, b); });
    return fitted;
  }

  std::size_t depth() const { return tables_.header().options.depth; }
  std::size_t record_bytes() const { return (2 + depth()) * sizeof(std::size_t); }
  std::size_t bytes() const { return count_ * record_bytes(); }

  std::size_t total() {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count_; ++i) sum += groups_[i].size * groups_[i].blocks;
    return sum;
  }

  // `records` is zeroed memory for all of them.
  void write(std::size_t* records) {
    for (std::size_t i = 0; i < count_; ++i, records += 2 + depth()) {
      records[0] = groups_[i].size;
      records[1] = groups_[i].blocks;
      stack(groups_[i].node, records + 2);
    }
  }

 private:
  // Returns the number of frames. Python functions have no address.
  std::size_t stack(std::uint32_t node, std::size_t* frames) const {
    std::size_t count = 0;
    tables_.each_frame(node, [&](std::uint32_t, const recorder::Node& frame) {
      if (count < depth() && !recorder::is_python(frame.pc)) frames[count++] = frame.pc;
    });
    return count;
  }

  // By size, the largest first, then by depth, the deepest first, then by address.
  bool comes_before(const Group& a, const Group& b) const {
    if (a.size != b.size) return a.size > b.size;
    if (a.node == b.node) return false;
    std::size_t of_a[recorder::kMaxDepth], of_b[recorder::kMaxDepth];
    std::size_t deep_a = stack(a.node, of_a), deep_b = stack(b.node, of_b);
    if (deep_a != deep_b) return deep_a > deep_b;
    return std::lexicographical_compare(of_a, of_a + deep_a, of_b, of_b + deep_b);
  }

  // Sorts the groups, and merges equivalent neighbours.
  template <typename Before>
  void merge(Before before) {
    Group* end = count_ == 0 ? groups_.end() : groups_.begin() + count_;
    std::sort(groups_.begin(), end, before);
    std::size_t kept = 0;
    for (Group* group = groups_.begin(); group != end; ++group) {
      if (kept > 0 && !before(groups_[kept - 1], *group))
        groups_[kept - 1].blocks += group->blocks;
      else
        groups_[kept++] = *group;
    }
    count_ = kept;
  }

  Tables tables_;
  UnseenArray<Group> groups_;
  std::size_t count_ = 0;
};

// Before the records: how much is mapped for them.
constexpr std::size_t kBefore = 64;

void complain(const char* sentence) {
  if (write(STDERR_FILENO, sentence, std::strlen(sentence)) < 0) return;  // stderr is closed
}

}  // namespace
}  // namespace reachscan::library

using namespace reachscan;
using namespace reachscan::library;

extern "C" void get_malloc_leak_info(uint8_t** info, size_t* overall_size, size_t* info_size,
                                     size_t* total_memory, size_t* backtrace_size) {
  if (info == nullptr || overall_size == nullptr || info_size == nullptr ||
      total_memory == nullptr || backtrace_size == nullptr)
    return complain("get_malloc_leak_info: at least one invalid parameter\n");
  *info = nullptr;
  *overall_size = *info_size = *total_memory = *backtrace_size = 0;
  recorder::Header* header = find_tables();
  if (header == nullptr) return;
  LeakInfo list{Tables(header)};
  if (!list.collect()) return complain("get_malloc_leak_info: there is no memory\n");
  if (list.bytes() == 0) return;
  auto* memory = static_cast<std::uint8_t*>(map_unseen(kBefore + list.bytes()));
  if (memory == nullptr) return complain("get_malloc_leak_info: there is no memory\n");
  *reinterpret_cast<std::size_t*>(memory) = kBefore + list.bytes();
  list.write(reinterpret_cast<std::size_t*>(memory + kBefore));
  *info = memory + kBefore;
  *overall_size = list.bytes();
  *info_size = list.record_bytes();
  *total_memory = list.total();
  *backtrace_size = list.depth();
}

extern "C" void free_malloc_leak_info(uint8_t* info) {
  if (info == nullptr) return;
  std::uint8_t* memory = info - kBefore;
  unmap_unseen(memory, *reinterpret_cast<std::size_t*>(memory));
}
