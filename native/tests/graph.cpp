// Builds random graphs of blocks, and searches them in the simplest way.
#include "graph.hpp"

#include <algorithm>

#include "check.hpp"

namespace reachscan::tests {
namespace {

constexpr uint64_t kHeader = 16;
constexpr uint64_t kNobodysBytes = 32 << 20;

uint64_t chunk_bytes(std::size_t words, Layout layout) {
  if (layout == Layout::kSlots) return 8 * words;
  return std::max<uint64_t>(32, heaps::align_up(8 * words + 8, 16));
}

const heaps::Space& map_chunks(Memory& memory, const std::vector<std::size_t>& words,
                               Layout layout) {
  uint64_t bytes = 2 * kHeader;
  for (std::size_t count : words) bytes += chunk_bytes(count, layout);
  uint64_t end = memory.map(kWorld, heaps::align_up(bytes, heaps::kPage)) + bytes;
  memory.map(heaps::align_up(end, heaps::kPage), kNobodysBytes);
  return memory.space();
}

}  // namespace

Graph::Graph(const std::vector<std::size_t>& words, Layout layout)
    : blocks(map_chunks(memory, words, layout), sweeper::map_memory),
      tail_(layout == Layout::kSlots ? 0 : 8) {
  uint64_t chunk = kWorld;
  for (std::size_t count : words) {
    starts_.push_back(chunk + kHeader);
    chunk += chunk_bytes(count, layout);
    ends_.push_back(chunk + kHeader - tail_);
    blocks.add_live(starts_.back());
  }
  // As after a top chunk.
  blocks.add_boundary(chunk + kHeader);
  uint64_t end = memory.mappings().front().end;
  blocks.add_boundary(end);
  CHECK(blocks.regions.push({kWorld, end, wire::kProgramBreak, 0, tail_, 0}));
  blocks.finish();
}

void Graph::root(std::size_t to, uint64_t offset) { roots_.push_back(starts_[to] + offset); }

void Graph::note_blanks() {
  if (!arch::has_lanes()) return;
  blocks.find_blanks();
  const abi::Mapping& heap = memory.mappings().front();
  for (uint64_t base = heap.start; base < heap.end; base += heaps::kSpan) blocks.note_blanks(base);
}

void Graph::mark(uint64_t least_many) {
  sweeper::Marker marking = marker(least_many);
  marking.mark_range(first_root(), end_of_roots());
}

void Graph::connect_randomly(std::mt19937_64& random) {
  std::size_t edges = random() % (3 * size());
  for (std::size_t i = 0; i < edges; ++i) {
    std::size_t from = random() % size(), to = random() % size();
    point(from, random() % words(from), to, random() % (bytes(to) + 8));
  }
  for (std::size_t i = random() % 4; i > 0; --i) root(random() % size());
}

void Graph::check_marks() const {
  std::vector<bool> expected = reachable_from_roots();
  for (std::size_t block = 0; block < size(); ++block)
    CHECK_EQ(blocks.is_marked(start(block)), bool{expected[block]});
}

void Graph::check_extents() const {
  for (std::size_t block = 0; block < size(); ++block) {
    CHECK_EQ(blocks.end_of(start(block)), ends_[block]);
    CHECK_EQ(blocks.block_of(ends_[block] - 1), start(block));
    CHECK_EQ(blocks.block_of(ends_[block]), uint64_t{0});
  }
}

uint64_t Graph::nobodys(uint64_t offset) const {
  return memory.mappings().back().start + offset % kNobodysBytes;
}

std::size_t Graph::block_at(uint64_t value) const {
  auto after = std::upper_bound(starts_.begin(), starts_.end(), value);
  if (after == starts_.begin()) return size();
  auto block = static_cast<std::size_t>(after - starts_.begin() - 1);
  return value < ends_[block] ? block : size();
}

std::vector<std::size_t> Graph::children(std::size_t block) const {
  std::vector<std::size_t> found;
  for (uint64_t at = starts_[block]; at < ends_[block]; at += 8) {
    uint64_t value = heaps::word(at);
    std::size_t child = block_at(value);
    if (child == size()) continue;
    bool may_be_stale = tail_ != 0 && at < starts_[block] + 32 && value == ends_[child] - 8;
    if (!may_be_stale) found.push_back(child);
  }
  return found;
}

std::vector<bool> Graph::reachable(std::vector<std::size_t> from,
                                   const std::vector<bool>& enter) const {
  std::vector<bool> seen(size());
  while (!from.empty()) {
    std::size_t block = from.back();
    from.pop_back();
    if (seen[block] || !enter[block]) continue;
    seen[block] = true;
    for (std::size_t child : children(block)) from.push_back(child);
  }
  return seen;
}

std::vector<bool> Graph::reachable_from_roots() const {
  std::vector<std::size_t> from;
  for (uint64_t value : roots_)
    if (block_at(value) != size()) from.push_back(block_at(value));
  return reachable(from, std::vector<bool>(size(), true));
}

}  // namespace reachscan::tests
