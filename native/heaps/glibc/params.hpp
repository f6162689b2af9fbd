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

// Four ints come before mmapped_mem, max_mmapped_mem, sbrk_base: n_mmaps, n_mmaps_max, max_n_mmaps,
// no_dyn_threshold. Since 2.35, four bytes of padding follow them where words have eight bytes.
inline bool plausible_params(uint64_t sbrk_base_field, uint32_t ints_before, Params& params) {
  int32_t n_mmaps = load<int32_t>(sbrk_base_field - ints_before);
  int32_t n_mmaps_max = load<int32_t>(sbrk_base_field - ints_before + 4);
  int32_t max_n_mmaps = load<int32_t>(sbrk_base_field - ints_before + 8);
  int32_t no_dyn = load<int32_t>(sbrk_base_field - ints_before + 12);
  uint64_t mapped = word(sbrk_base_field - 2 * kWord);
  uint64_t max_mapped = word(sbrk_base_field - kWord);
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

constexpr uint32_t kIntsBeforeUntil234 = 16 + 2 * kWord;
constexpr uint32_t kIntsBeforeFrom235 = kWord == 8 ? 36 : kIntsBeforeUntil234;
constexpr uint32_t kParamsReach = kWord == 8 ? 96 : 56;  // maximal offset of sbrk_base in mp_

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
      for (uint32_t before : {kIntsBeforeFrom235, kIntsBeforeUntil234}) {
        Params params;
        // All zeros would be plausible, so an unused heap is recognised by its limit of 65536.
        if (base == 0 && load<int32_t>(field - before + 4) != 65536) continue;
        if (plausible_params(field, before, params) && accept(params)) return params;
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
