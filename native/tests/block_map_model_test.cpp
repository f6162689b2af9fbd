// Random heaps: the bitmaps must give the same answers as a plain sorted map.
#include <map>
#include <random>
#include <vector>

#include "check.hpp"
#include "hosted.hpp"
#include "memory/block_map.hpp"

namespace reachscan::tests {
namespace {

using heaps::BlockMap;
using heaps::kGranule;
using heaps::kPage;
using heaps::Region;

// Seeds are fixed, and the engine gives the same numbers everywhere (distributions do not).
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  uint64_t below(uint64_t limit) { return engine_() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

struct Model {
  struct Block {
    uint64_t end;
    bool marked;
  };
  std::map<uint64_t, Block> live;

  uint64_t block_of(uint64_t value) const {
    auto after = live.upper_bound(value);
    if (after == live.begin()) return 0;
    --after;
    return value < after->second.end ? after->first : 0;
  }
};

class RandomHeap {
 public:
  explicit RandomHeap(unsigned seed) : random_(seed), mappings_(places()) {}

  const std::vector<abi::Mapping>& mappings() const { return mappings_; }

  // None, half or all of 64.
  uint64_t bits() {
    uint64_t kind = random_.below(4), some = random_.below(~0ull);
    return kind == 0 ? 0 : kind == 1 ? ~0ull : some;
  }

  void fill(BlockMap& blocks, Model& model) {
    for (const abi::Mapping& m : mappings_) {
      uint64_t at = m.start;
      while (at + kPage <= m.end) {
        if (random_.one_in(4)) at += kPage * (1 + random_.below(3));  // a gap
        if (at + kPage > m.end) break;
        uint64_t room = (m.end - at) / kPage;
        uint64_t end = at + kPage * (1 + random_.below(room));
        if (random_.one_in(3)) {
          fill_mapped(blocks, model, at, end);
        } else {
          // An arena need not end at a page boundary.
          end -= random_.one_in(2) ? kGranule * random_.below(64) : 0;
          fill_arena(blocks, model, at, end);
        }
        at = heaps::align_up(end, kPage);
      }
    }
    shuffle(blocks);
    blocks.finish();
  }

  // Mostly values near those at which the answer changes.
  uint64_t value(const Model& model) {
    const abi::Mapping& m = mappings_[random_.below(mappings_.size())];
    if (model.live.empty() || random_.one_in(4))
      return m.start - 64 + random_.below(m.end - m.start + 128);
    auto block = model.live.lower_bound(m.start + random_.below(m.end - m.start));
    if (block == model.live.end()) block = model.live.begin();
    uint64_t edge = random_.one_in(2) ? block->first : block->second.end;
    return edge - 20 + random_.below(40);
  }

 private:
  std::vector<abi::Mapping> places() {
    std::vector<abi::Mapping> found;
    uint64_t at = 0x10000000 + kPage * random_.below(64);
    for (uint64_t count = 1 + random_.below(6); count > 0; --count) {
      uint64_t bytes = kPage * (1 + random_.below(random_.one_in(3) ? 1000 : 40));
      found.push_back({at, at + bytes, wire::kRead | wire::kWrite, 0, 0, 0});
      at += bytes + kPage * random_.below(40);
      if (random_.one_in(3)) at += (300ull << 30) + kPage * random_.below(64);
    }
    return found;
  }

  void fill_mapped(BlockMap& blocks, Model& model, uint64_t start, uint64_t end) {
    uint32_t tail = random_.one_in(2) ? 8 : 0;
    uint64_t user = start + kGranule * (1 + random_.below(4));
    blocks.add_live(user);
    model.live[user] = {end - tail, false};
    close(blocks, {start, end, wire::kMapped, 0, tail, 0});
  }

  void fill_arena(BlockMap& blocks, Model& model, uint64_t start, uint64_t end) {
    bool coarse = random_.one_in(3);
    for (uint64_t user = start + kGranule; user < end;) {
      uint64_t size = 32 + kGranule * random_.below(coarse ? 40000 : 80);
      uint64_t next = end - user < size + 32 ? end : user + size;
      // Live, free, or free after having been added as live.
      uint64_t kind = random_.below(5);
      if (kind != 0) blocks.add_live(user);
      if (kind == 0) blocks.add_boundary(user);
      if (kind == 1) blocks.drop_live(user);
      if (kind > 1) model.live[user] = {next - 8, false};
      user = next;
    }
    close(blocks, {start, end, wire::kThreadHeap, 1, 8, 0});
  }

  static void close(BlockMap& blocks, const Region& region) {
    blocks.add_boundary(region.end);
    CHECK(blocks.regions.push(region));
  }

  // Walkers find regions in no particular order.
  void shuffle(BlockMap& blocks) {
    for (std::size_t i = blocks.regions.size(); i > 1; --i)
      std::swap(blocks.regions[i - 1], blocks.regions[random_.below(i)]);
  }

  Random random_;
  std::vector<abi::Mapping> mappings_;
};

void check_lists(const BlockMap& blocks, const Model& model) {
  auto expected = model.live.begin();
  blocks.each_live([&](uint64_t block) {
    CHECK(expected != model.live.end());
    CHECK_EQ(block, expected->first);
    CHECK_EQ(blocks.end_of(block), expected->second.end);
    ++expected;
  });
  CHECK(expected == model.live.end());
  auto unmarked = model.live.begin();
  auto skip = [&] {
    while (unmarked != model.live.end() && unmarked->second.marked) ++unmarked;
  };
  skip();
  blocks.each_unmarked([&](uint64_t block) {
    CHECK(unmarked != model.live.end());
    CHECK_EQ(block, unmarked->first);
    ++unmarked;
    skip();
  });
  CHECK(unmarked == model.live.end());
}

void check_values(const BlockMap& blocks, const Model& model, RandomHeap& heap) {
  for (int i = 0; i < 2000; ++i) {
    uint64_t value = heap.value(model);
    uint64_t block = model.block_of(value);
    CHECK_EQ(blocks.block_of(value), block);
    if (block != 0) CHECK(blocks.may_point(value));
    CHECK_EQ(blocks.is_live(value), model.live.count(value) != 0);
  }
}

void mark_some(BlockMap& blocks, Model& model, RandomHeap& heap) {
  for (int i = 0; i < 500; ++i) {
    uint64_t value = heap.value(model);
    uint64_t block = model.block_of(value);
    bool fresh = block != 0 && !model.live[block].marked;
    CHECK_EQ(blocks.mark(value), fresh ? block : 0);
    if (fresh) model.live[block].marked = true;
    if (block != 0) CHECK(blocks.is_marked(block));
    if (block != 0 && i % 7 == 0) {
      blocks.clear_mark(block);
      model.live[block].marked = false;
    }
  }
}

// Blocks that were made grey, by start.
using Expected = std::map<uint64_t, uint64_t>;

// Answers do not change while blocks are grey.
Expected grey_some(BlockMap& blocks, Model& model, RandomHeap& heap) {
  Expected expected;
  for (int i = 0; i < 500; ++i) {
    uint64_t value = heap.value(model);
    const heaps::Cluster* cluster = blocks.cluster_of(value);
    if (cluster == nullptr) continue;
    uint64_t block = model.block_of(value);
    bool fresh = block != 0 && !model.live[block].marked;
    CHECK_EQ(blocks.block_in(*cluster, value | heaps::kElsewhere), block);
    if (block == 0) continue;
    CHECK_EQ(heaps::make_grey(*cluster, block), fresh);
    if (!fresh) continue;
    model.live[block].marked = true;
    expected[block] = model.live[block].end;
  }
  check_values(blocks, model, heap);
  return expected;
}

template <typename Look>
void each_span(const RandomHeap& heap, Look look, uint64_t spans = 1) {
  const uint64_t bytes = spans * heaps::kSpan;
  for (const abi::Mapping& m : heap.mappings())
    for (uint64_t base = m.start & ~(bytes - 1); base < m.end; base += bytes) look(base);
}

// In the fine form, a marked neighbour within the same two granules may be returned with a block.
void check_given(const Model& model, const Expected& given, Expected expected) {
  for (const auto& [start, end] : given) {
    CHECK_EQ(end, model.live.at(start).end);
    if (expected.erase(start) == 0)
      CHECK(heaps::kFine && model.live.at(start).marked && given.count(start ^ kGranule) != 0);
  }
  CHECK(expected.empty());
}

// Each grey block is returned once.
void take_greys(BlockMap& blocks, const Model& model, const RandomHeap& heap,
                const Expected& expected) {
  Expected given;
  each_span(heap, [&](uint64_t base) {
    blocks.take_grey(*blocks.cluster_of(base), base, [&](heaps::Range block) {
      CHECK(given.emplace(block.start, block.end).second);
    });
  });
  check_given(model, given, expected);
}

// Each is returned once, or all its granules that are not blank.
void take_granules(BlockMap& blocks, const Model& model, RandomHeap& heap,
                   const Expected& expected) {
  auto is_blank = [&](uint64_t granule) {
    return (*blocks.cluster_of(granule)->blanks_at(granule) >> heaps::bit_of(granule) & 1) != 0;
  };
  each_span(heap, [&](uint64_t base) { *blocks.cluster_of(base)->blanks_at(base) = heap.bits(); });
  Expected given;
  std::map<uint64_t, uint64_t> granules;
  auto take = [&](uint64_t base) {
    blocks.take_granules(
        *blocks.cluster_of(base), base,
        [&](heaps::Range block) { CHECK(given.emplace(block.start, block.end).second); },
        [&](heaps::Granule granule) {
          CHECK(granules.emplace(granule & ~(kGranule - 1), granule % kGranule).second);
        });
  };
  each_span(heap, take, heaps::kSpansAtOnce);
  std::size_t visited = 0;
  for (const auto& [start, block] : model.live) {
    if (given.count(start) != 0 || !block.marked) continue;
    std::size_t before = visited, all = 0;
    for (uint64_t at = start; at < block.end; at += kGranule) {
      auto granule = granules.find(at);
      bool in_head = at - start < heaps::kHeadBytes, is_last = at + heaps::kWord >= block.end;
      uint64_t how = (in_head ? 0 : heaps::kElsewhere) + (is_last && !heaps::kFine ? 8 : 0);
      if (granule != granules.end()) CHECK_EQ(granule->second, how);
      visited += granule != granules.end();
      all += !is_blank(at);
    }
    if (expected.count(start) != 0) CHECK_EQ(visited - before, all);
    if (expected.count(start) != 0 || visited != before) given[start] = block.end;
  }
  CHECK_EQ(visited, granules.size());
  check_given(model, given, expected);
}

CASE(random_heaps_answer_as_the_model_does) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    context = "seed " + std::to_string(seed);
    Host host;
    RandomHeap heap(seed);
    heaps::Space space(heap.mappings().data(), heap.mappings().size());
    BlockMap blocks(space, sweeper::map_memory);
    Model model;
    heap.fill(blocks, model);
    check_lists(blocks, model);
    check_values(blocks, model, heap);
    mark_some(blocks, model, heap);
    Expected grey = grey_some(blocks, model, heap);
    if (seed % 2 == 0) take_greys(blocks, model, heap, grey);
    if (seed % 2 != 0) take_granules(blocks, model, heap, grey);
    check_values(blocks, model, heap);
    check_lists(blocks, model);
  }
}

}  // namespace
}  // namespace reachscan::tests
