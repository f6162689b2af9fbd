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

// Chunks are as in glibc: a size word between neighbours, and some blocks with more words than
// requested. Slots have nothing between them, for the fine form of the block map.
enum class Layout { kChunks, kSlots };

constexpr std::size_t kMany = 7000;  // so many pointers found at once are sorted by address

class Graph {
 public:
  // One block for each entry. Needs a live Host.
  explicit Graph(const std::vector<std::size_t>& words, Layout layout = Layout::kChunks);
  Graph(std::size_t count, std::size_t words) : Graph(std::vector<std::size_t>(count, words)) {}

  std::size_t size() const { return starts_.size(); }
  uint64_t start(std::size_t block) const { return starts_[block]; }
  uint64_t bytes(std::size_t block) const { return ends_[block] - starts_[block]; }
  std::size_t words(std::size_t block) const { return bytes(block) / 8; }

  // Makes a word of a block point `offset` bytes into another.
  void point(std::size_t from, std::size_t word, std::size_t to, uint64_t offset = 0) {
    memory.put(starts_[from] + 8 * word, starts_[to] + offset);
  }
  // Returns a place in memory after the heap that resembles it but is no heap.
  uint64_t nobodys(uint64_t offset) const;
  // Makes the next word of the root area point into a block.
  void root(std::size_t to, uint64_t offset = 0);
  // Returns a marker with a worklist of its own.
  sweeper::Marker marker(uint64_t least_many = sweeper::SharedWorklist::kMinMany) {
    return {memory.space(), blocks, teams_.emplace_back(blocks, put_aside, least_many)};
  }
  // Adds pointers from anywhere to anywhere, some of them interior or just missing, and a few
  // roots.
  void connect_randomly(std::mt19937_64& random);
  // Notes all blank granules, as after a walk. Pointers that are added later may be missed.
  void note_blanks();
  // Marks from the roots.
  void mark(uint64_t least_many = sweeper::SharedWorklist::kMinMany);

  // Returns the block that `value` points into, size() if none. Compares with the extents.
  std::size_t block_at(uint64_t value) const;
  // Returns what a block's words point to, except those at its head that point to the last word of
  // a block.
  std::vector<std::size_t> children(std::size_t block) const;
  // Returns which blocks a walk from `from`, included, visits among the blocks that `enter` admits.
  std::vector<bool> reachable(std::vector<std::size_t> from, const std::vector<bool>& enter) const;
  std::vector<bool> reachable_from_roots() const;
  // Fails unless exactly the reachable blocks are marked.
  void check_marks() const;
  // Fails if the map no longer knows where blocks end.
  void check_extents() const;
  uint64_t first_root() const { return reinterpret_cast<uint64_t>(roots_.data()); }
  uint64_t end_of_roots() const { return first_root() + 8 * roots_.size(); }

  Memory memory;
  heaps::BlockMap blocks;
  sweeper::DeferredWords put_aside{blocks};

 private:
  uint32_t tail_;  // bytes between two blocks
  std::vector<uint64_t> starts_;
  std::vector<uint64_t> ends_;
  std::vector<uint64_t> roots_;
  std::deque<sweeper::SharedWorklist> teams_;
};

}  // namespace reachscan::tests
