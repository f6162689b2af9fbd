// Finds mp_ (struct malloc_par, local to the library): it contains the start of the main heap and
// the number of mapped blocks.
#pragma once

#include "heaps/glibc/layout.hpp"

namespace reachscan::heaps::glibc {

struct Params {
  bool found = false;
  uint64_t mapped_count = 0;
  uint64_t sbrk_base = 0;  // 0: the main heap has not been used
};

// Distances from sbrk_base.
struct ParamsLayout {
  uint32_t ints;    // n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn_threshold
  uint32_t mapped;  // mmapped_mem, max_mmapped_mem
};

// Until 2.23 max_total_mem comes before sbrk_base. Since 2.35 four bytes of padding follow the ints
// where words have eight bytes.
constexpr ParamsLayout kParamsUntil223 = {16 + 3 * kWord, 3 * kWord};
constexpr ParamsLayout kParamsUntil234 = {16 + 2 * kWord, 2 * kWord};
constexpr ParamsLayout kParamsFrom235 = {kWord == 8 ? 36 : 16 + 2 * kWord, 2 * kWord};
constexpr uint32_t kParamsReach = kWord == 8 ? 96 : 56;  // maximal offset of sbrk_base in mp_

inline bool plausible_params(uint64_t sbrk_base_field, const ParamsLayout& layout, Params& params) {
  uint64_t ints = sbrk_base_field - layout.ints;
  int32_t n_mmaps = load<int32_t>(ints);
  int32_t n_mmaps_max = load<int32_t>(ints + 4);
  int32_t max_n_mmaps = load<int32_t>(ints + 8);
  int32_t no_dyn = load<int32_t>(ints + 12);
  uint64_t mapped = word(sbrk_base_field - layout.mapped);
  uint64_t max_mapped = word(sbrk_base_field - layout.mapped + kWord);
  if (n_mmaps < 0 || n_mmaps > max_n_mmaps || max_n_mmaps > (1 << 24) || n_mmaps_max < 0)
    return false;
  if (no_dyn != 0 && no_dyn != 1) return false;
  if (mapped % kChunkAlignment != 0 || max_mapped % kChunkAlignment != 0 || mapped > max_mapped)
    return false;
  // Each mapped block has at least a page; 2.43 counts 16 bytes too many at each mremap.
  if (mapped < static_cast<uint64_t>(n_mmaps) * kPage) return false;
  if ((max_n_mmaps == 0) != (max_mapped == 0)) return false;
  params = {true, static_cast<uint64_t>(n_mmaps), word(sbrk_base_field)};
  return true;
}

// `accept(params)` proves a candidate by walking from its sbrk_base.
template <typename Accept>
Params find_params_where(const Space& space, const Instance& instance, bool heap_used,
                         Accept accept) {
  for (const abi::Mapping& m : space) {
    if (!Space::is_module_data(m) || m.file != instance.file) continue;
    for (uint64_t field = align_up(m.start, kWord) + kParamsReach; field + kWord <= m.end;
         field += kWord) {
      uint64_t base = word(field);
      if ((base != 0) != heap_used) continue;
      // The arena's own fields point to chunks, among zeros.
      bool in_arena = field >= instance.main_arena &&
                      field - kParamsReach < instance.main_arena + instance.layout.size;
      if (in_arena) continue;
      const abi::Mapping* target = base == 0 ? nullptr : space.find(base);
      if (base != 0 && (target == nullptr || !Space::is_written_anonymous(*target))) continue;
      for (const ParamsLayout& layout : {kParamsFrom235, kParamsUntil234, kParamsUntil223}) {
        Params params;
        // All zeros would be plausible, so an unused heap is recognised by its limit of 65536.
        if (base == 0 && load<int32_t>(field - layout.ints + 4) != 65536) continue;
        if (plausible_params(field, layout, params) && accept(params)) return params;
      }
    }
  }
  return {};
}

// Candidates that name the start of the main heap come first; only without one of these, those that
// do not.
template <typename Accept>
Params find_params(const Space& space, const Instance& instance, Accept accept) {
  Params params = find_params_where(space, instance, true, accept);
  return params.found ? params : find_params_where(space, instance, false, accept);
}

}  // namespace reachscan::heaps::glibc
