// The memory in which the allocator keeps its own structures. Nothing in it is a block, and
// pointers in it do not keep blocks in use. It has pages of its own, of which those are known where
// a structure was met.
#pragma once

#include "heaps/tcmalloc/layout.hpp"

namespace reachscan::heaps::tcmalloc {

class Metadata {
 public:
  Metadata(const Space& space, BlockMap& blocks, uint32_t arena)
      : space_(space), blocks_(blocks), arena_(arena) {}

  // Claims the pages of a structure. Fails if they belong to something else.
  Verdict claim(uint64_t at, uint64_t bytes) {
    for (uint64_t page = at & ~(kPage - 1); page < at + bytes; page += kPage) {
      if (page == last_) continue;
      last_ = page;
      const Region* other = blocks_.region_in({page, page + kPage});
      if (other != nullptr && other->kind == wire::kThreadHeap && is_mine(*other)) continue;
      if (other != nullptr || !space_.is_anonymous(page, page + kPage))
        return invalid("the allocator's own structures are not in its own memory", at);
      blocks_.add_boundary(page);
      if (!blocks_.is_live(page + kPage)) blocks_.add_boundary(page + kPage);
      if (!blocks_.add_region({page, page + kPage, wire::kThreadHeap, arena_, 0, 0}))
        return {Verdict::kNoMemory, nullptr, page};
    }
    return {};
  }

 private:
  bool is_mine(const Region& region) const {
    return region.arena == arena_ && region.end - region.start == kPage;
  }

  const Space& space_;
  BlockMap& blocks_;
  uint32_t arena_;
  uint64_t last_ = 0;
};

}  // namespace reachscan::heaps::tcmalloc
