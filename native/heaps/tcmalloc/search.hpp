// Finds the allocator in stripped, dynamic and static programs alike. Its central lists are
// recognised by that of class 0, whose lists of spans are always empty, so their headers point to
// themselves. Everything else follows from them: the sizes of classes are an array in the same
// data, and the root of the tree is where a span of a central list is found by its page.
#pragma once

#include "heaps/images.hpp"
#include "heaps/tcmalloc/layout.hpp"

namespace reachscan::heaps::tcmalloc {

constexpr std::size_t kMaxInstances = 8;

class Search {
 public:
  explicit Search(const Space& space) : space_(space) {}

  std::size_t find(Instance (&found)[kMaxInstances]) {
    std::size_t count = 0;
    each_module_data(space_, [&](uint32_t file, Range data) {
      if (count == kMaxInstances || data.end - data.start < kRootBytes) return;
      data_ = data;
      found[count].file = file;
      found[count].data = data;
      if (find_central(found[count]) && find_classes(found[count]) && find_root(found[count]))
        ++count;
    });
    return count;
  }

 private:
  static constexpr unsigned kSpansTried = 8;

  // Calls test(address) for the written words of the module's data, `step` apart, until it returns
  // true. `bytes` from each address on are also in the module.
  template <typename Test>
  bool any(uint64_t step, uint64_t bytes, Test test) const {
    if (data_.end - data_.start < bytes) return false;
    for (uint64_t at = align_up(data_.start, 8); at <= data_.end - bytes; at += step) {
      if (at % kPage == 0) at = space_.skip_absent(at);
      if (at <= data_.end - bytes && test(at)) return true;
    }
    return false;
  }

  bool find_central(Instance& found) const {
    constexpr uint64_t kMax = kMaxClasses * Central::kPaddedBytes;
    return any(8, kMax, [&found](uint64_t at) {
      uint64_t header = at + Central::kFullHeader;
      if (word(header + kNextField) != header || Central{at}.size_class() != 0 ||
          !is_empty_list(header) || !is_empty_list(at + Central::kOtherHeader))
        return false;
      for (uint64_t stride : {Central::kPaddedBytes, Central::kBytes}) {
        found.central = at;
        found.central_stride = stride;
        if (found.central_of(1).size_class() == 1 && found.central_of(2).size_class() == 2)
          return true;
      }
      return false;
    });
  }

  bool find_classes(Instance& found) const {
    constexpr uint64_t kFirstTwo = uint64_t{kMinSize} << 32;
    bool is_there = any(4, Classes::bytes(), [&found](uint64_t at) {
      if (word(at) != kFirstTwo) return false;
      found.classes = classes_at(at);
      return found.classes.at != 0;
    });
    for (unsigned number = 0; is_there && number < found.classes.count; ++number)
      is_there = found.central_of(number).size_class() == number;
    return is_there;
  }

  bool find_root(Instance& found) const {
    unsigned tried = 0;
    for (unsigned number = 1; number < found.classes.count && tried < kSpansTried; ++number) {
      for (uint64_t field : {Central::kFullHeader, Central::kOtherHeader}) {
        uint64_t header = found.central_of(number).at + field, span = word(header + kNextField);
        if (span == header || !space_.readable(span, kSpanBytes)) continue;
        ++tried;
        if (find_root_by(span, found)) return true;
      }
    }
    return false;
  }

  bool find_root_by(uint64_t span, Instance& found) const {
    uint64_t page = word(span);
    if (page >= kPages) return false;
    uint64_t in_root = 8 * (page >> kLeafBits), in_leaf = 8 * (page % kLeafSlots);
    return any(8, 8, [&](uint64_t at) {
      uint64_t leaf = word(at);
      if (leaf == 0 || leaf % 8 != 0 || at - data_.start < in_root ||
          data_.end - (at - in_root) < kRootBytes || !space_.readable(leaf, kLeafBytes) ||
          word(leaf + in_leaf) != span)
        return false;
      found.root = at - in_root;
      return true;
    });
  }

  const Space& space_;
  Range data_{0, 0};
};

}  // namespace reachscan::heaps::tcmalloc
