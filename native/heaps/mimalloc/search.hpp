// Finds segments and the variable used to sign them, in stripped, dynamic and static programs
// alike.
#pragma once

#include "heaps/images.hpp"
#include "heaps/mimalloc/layout.hpp"

namespace reachscan::heaps::mimalloc {

constexpr std::size_t kMaxInstances = 8;

// Calls visit(address) wherever a segment may start. visit returns where to continue.
template <typename Visit>
void each_place(const Space& space, Visit visit) {
  uint64_t next = 0;
  for (const abi::Mapping& m : space) {
    if (!Space::is_written_anonymous(m)) continue;
    uint64_t at = align_up(m.start > next ? m.start : next, kLeastAlignment);
    while (at < m.end) at = next = visit(at);
  }
}

class Search {
 public:
  explicit Search(const Space& space) : space_(space) {}

  std::size_t find(Instance (&found)[kMaxInstances]) {
    std::size_t count = 0;
    each_place(space_, [&](uint64_t at) {
      for (const Layout& layout : kLayouts) {
        Segment segment = segment_at(space_, at, layout);
        if (segment.bytes == 0 || count == kMaxInstances) continue;
        if (is_known(segment, found, count))
          return align_up(segment.end(layout), layout.alignment());
        if (find_main_heap(segment.key, layout, found[count])) ++count;
      }
      return at + kLeastAlignment;
    });
    return count;
  }

 private:
  // Each takes a pass over the data of all modules.
  static constexpr uint64_t kPasses = 64;

  static bool is_known(const Segment& segment, const Instance (&found)[kMaxInstances],
                       std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      if (found[i].key == segment.key) return true;
    return false;
  }

  bool find_main_heap(uint64_t key, const Layout& layout, Instance& found) {
    uint64_t done = 0;
    if (!passes_.spend(1)) return false;
    for (const abi::Mapping& m : space_) {
      if (!Space::is_module_data(m) || m.start < done) continue;
      Range data = data_of_module(space_, &m);
      done = data.end;
      for (uint64_t at = align_up(data.start, 8); at + 8 <= data.end; at += 8) {
        if (at % kPage == 0) at = space_.skip_absent(at);
        if (at + 8 > data.end) break;
        if (word(at) != key) continue;
        found = {key, at - layout.heap_cookie, m.file, layout};
        return true;
      }
    }
    return false;
  }

  const Space& space_;
  Budget passes_{kPasses};
};

}  // namespace reachscan::heaps::mimalloc
