// Blocks in real memory that point to each other, and simple ways to determine what is reachable.
#pragma once

#include <deque>
#include <random>
#include <vector>

#include "hosted.hpp"
#include "memory.hpp"
#include "memory/block_map.hpp"
#include "sweeper/mark/mark.hpp"

namespace reachscan::tests {

// Chunks, as glibc has them: a size word between neighbours, and some blocks with more words than
// were asked for. Or slots, which have nothing between them: for the fine form of the block map.
enum class Layout { kChunks, kSlots };

class Graph {
 public:
  // One block for each entry. `host` must be the one that lives.
  explicit Graph(const std::vector<std::size_t>& words, Layout layout = Layout::kChunks);
  Graph(std::size_t count, std::size_t words) : Graph(std::vector<std::size_t>(count, words)) {}

  std::size_t size() const { return starts_.size(); }
  uint64_t start(std::size_t block) const { return starts_[block]; }
  uint64_t bytes(std::size_t block) const { return ends_[block] - starts_[block]; }
  std::size_t words(std::size_t block) const { return bytes(block) / 8; }

  // Lets a word of a block point `offset` bytes into another.
  void point(std::size_t from, std::size_t word, std::size_t to, uint64_t offset = 0) {
    memory.put(starts_[from] + 8 * word, starts_[to] + offset);
  }
  // A place in memory behind the heap that is like it but no heap.
  uint64_t nobodys(uint64_t offset) const;
  // Lets the next word of the root area point into a block.
  void root(std::size_t to, uint64_t offset = 0);
  // A marker in a worklist of its own.
  sweeper::Marker marker(uint64_t least_many = sweeper::SharedWorklist::kLeastMany) {
    return {memory.space(), blocks, teams_.emplace_back(blocks, put_aside, least_many)};
  }
  // Pointers from anywhere to anywhere, interior ones and some that just miss; a few roots.
  void connect_randomly(std::mt19937_64& random);
  // Marks from the roots.
  void mark(uint64_t least_many = sweeper::SharedWorklist::kLeastMany);

  // The block that `value` points into, size() if none: found by looking at the extents.
  std::size_t block_at(uint64_t value) const;
  // What a block's words point to, but for those at its head that point to the last word of a
  // block.
  std::vector<std::size_t> children(std::size_t block) const;
  // Which blocks a walk from `from` visits, `from` included, on blocks that `enter` admits.
  std::vector<bool> reachable(std::vector<std::size_t> from, const std::vector<bool>& enter) const;
  std::vector<bool> reachable_from_roots() const;
  // Fails unless exactly those are marked.
  void check_marks() const;
  // Fails if the map does not know any more where blocks end.
  void check_extents() const;
  uint64_t first_root() const { return reinterpret_cast<uint64_t>(roots_.data()); }
  uint64_t end_of_roots() const { return first_root() + 8 * roots_.size(); }

  Memory memory;
  heaps::BlockMap blocks;
  sweeper::PutAside put_aside{blocks};

 private:
  uint32_t tail_;  // bytes between two blocks
  std::vector<uint64_t> starts_;
  std::vector<uint64_t> ends_;
  std::vector<uint64_t> roots_;
  std::deque<sweeper::SharedWorklist> teams_;
};

}  // namespace reachscan::tests
