// Damages a healthy heap as the input says, and sweeps it. Whatever the result, the sweeper must
// not read outside of the described mappings, and must terminate.
#include <algorithm>
#include <cstring>

#include "check.hpp"
#include "fuzz_input.hpp"
#include "hosted.hpp"
#include "scene.hpp"

extern "C" void reachscan_sweep();
extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);

namespace reachscan::tests {
namespace {

// The limit on reads of memory in one sweep. Some 100,000 are usual; a cost quadratic in the heap's
// size takes a billion.
constexpr uint64_t kMostLoads = 2'000'000;

// Words that mean something to the allocator: the nonzero ones outside the bins, which are many and
// alike.
std::vector<uint64_t> places_of(const Scene& scene) {
  std::vector<uint64_t> places;
  uint64_t bins = kMainArena + scene.release.arena.bins + 64;
  uint64_t more_bins = scene.thread_arena + scene.release.arena.bins + 64;
  for (const abi::Mapping& m : scene.memory.mappings()) {
    if ((m.perms & wire::kWrite) == 0) continue;
    for (uint64_t at = m.start; at < m.end; at += 8) {
      bool in_bins = at - bins < 0x780 || at - more_bins < 0x780;
      if (heaps::word(at) != 0 && !in_bins) places.push_back(at);
    }
  }
  return places;
}

uint64_t damaged(Input& input, uint64_t old, const std::vector<uint64_t>& places) {
  constexpr uint64_t kExtremes[] = {0,          1,         8,          16,         33,
                                    ~0ull,      ~0ull - 7, ~0ull - 15, 1ull << 63, 1ull << 47,
                                    1ull << 32, 0xfff,     kPage,      kHeapMax,   kMainArena};
  auto how = input.take<unsigned char>();
  auto number = input.take<uint32_t>();
  uint64_t other = places[number % places.size()];
  switch (how % 8) {
    case 0:
      return number;
    case 1:
      return kExtremes[number % std::size(kExtremes)];
    case 2:
      return old ^ (1ull << (number % 64));
    case 3:
      return old + 16 * static_cast<uint64_t>(static_cast<int8_t>(number));
    case 4:
      return heaps::word(other);
    case 5:
      return other + 8 * (how >> 3) - 16;
    case 6:
      return heaps::word(other) + 8 * (how >> 3) - 16;
    default:
      return input.take<uint64_t>();
  }
}

void damage_thread(Input& input, Scene& scene, const std::vector<uint64_t>& places) {
  abi::Thread& thread = scene.threads[0];
  uint64_t* fields[] = {&thread.pc, &thread.sp, &thread.thread_pointer};
  uint64_t& field = *fields[input.take<unsigned char>() % 3];
  field = damaged(input, field, places);
}

void damage(Input& input, Scene& scene) {
  std::vector<uint64_t> places = places_of(scene);
  for (int edits = 0; !input.empty() && edits < 16; ++edits) {
    auto which = input.take<uint16_t>();
    if (which % 64 == 63) {
      damage_thread(input, scene, places);
      continue;
    }
    uint64_t at = places[which % places.size()];
    scene.memory.put(at, damaged(input, heaps::word(at), places));
  }
}

void sweep(const Scene& scene) {
  Host host;
  host.control.contents_bytes = 256;
  host.describe(scene.memory.mappings(), scene.threads);
  heaps::loads = 0;
  try {
    reachscan_sweep();
  } catch (const Refused&) {
    CHECK(heaps::loads < kMostLoads);
    return;
  }
  CHECK(heaps::loads < kMostLoads);
  CHECK(host.finished);
  CHECK_EQ(host.leaks().size(), host.control.totals.leaked);
  CHECK(host.control.totals.leaked <= host.control.totals.allocations);
  CHECK(host.control.totals.leaked_bytes <= host.control.totals.bytes);
}

}  // namespace
}  // namespace reachscan::tests

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace reachscan::tests;
  Input input(data, size);
  const std::vector<Release>& all = releases();
  const Release& release = all[input.take<unsigned char>() % all.size()];
  auto bits = input.take<unsigned char>();
  Options options{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 0x18) != 0,
                  (bits & 0x60) != 0};
  Scene scene(release, options);
  damage(input, scene);
  sweep(scene);
  return 0;
}
