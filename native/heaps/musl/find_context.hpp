// Finds the allocator's context in the data of the C library or of a static program, stripped or
// not: it contains a secret that is also the first word of each page of group descriptors.
#pragma once

#include "heaps/images.hpp"
#include "heaps/musl/layout.hpp"

namespace reachscan::heaps::musl {

constexpr std::size_t kMaxContexts = 8;

inline bool is_area(const Space& space, uint64_t area, uint64_t secret) {
  return area != 0 && area % kPage == 0 && space.is_anonymous(area, area + kPage) &&
         space.readable(area, kPage) && word(area) == secret &&
         load<uint32_t>(area + kSlotCountField) == kDescriptorsInArea;
}

inline bool is_context(const Space& space, uint64_t at) {
  uint64_t secret = word(at + kSecretField);
  return load<uint32_t>(at + kInitDoneField) == 1 && secret != 0 &&
         is_area(space, word(at + kFirstAreaField), secret);
}

inline std::size_t find_contexts(const Space& space, Context (&found)[kMaxContexts]) {
  std::size_t count = 0;
  each_module_data(space, [&](uint32_t file, Range data) {
    for (uint64_t at = align_up(data.start, 8); at + kContextBytes <= data.end; at += 8) {
      if (at % kPage == 0) at = space.skip_absent(at);
      if (at + kContextBytes > data.end || count == kMaxContexts) break;
      if (is_context(space, at)) found[count++] = {at, file};
    }
  });
  return count;
}

}  // namespace reachscan::heaps::musl
