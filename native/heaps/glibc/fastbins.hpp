// Fastbins: chunks that are free, though they look allocated, in lists that may be long.
//
// A list in the order of its frees jumps about in memory, and each step waits for the one before.
// One step of every list of every arena in turn keeps as many reads under way as there are lists.
#pragma once

#include "heaps/glibc/find_arenas.hpp"
#include "heaps/glibc/free_lists.hpp"

namespace reachscan::heaps::glibc {

// The rest of a list.
struct Fastbin {
  uint64_t chunk;  // the next one; 0: none
  uint64_t chunk_size;
  Links links;

  bool fits(const BlockMap& blocks) const {
    return blocks.is_live(chunk + kHeader) && glibc::chunk_size(chunk) == chunk_size;
  }
  void advance() { chunk = follow(chunk + kHeader, links); }
};

// More reads than that are not under way at a time, whatever is asked for.
constexpr std::size_t kAtOnce = 16;
// Of so many steps, no list that is read the wrong way stays inside known blocks.
constexpr std::size_t kTellingSteps = 64;

inline bool begins_well(const BlockMap& blocks, Fastbin bin) {
  for (std::size_t i = 0; bin.chunk != 0 && i < kTellingSteps; ++i, bin.advance())
    if (!bin.fits(blocks)) return false;
  return true;
}

class Fastbins {
 public:
  explicit Fastbins(MapMemory map) : bins_(map, kMaxArenas * kFastbins) {}

  // The links are read as `expected`, as the caches' are, unless they do not fit that.
  Verdict add(const BlockMap& blocks, uint64_t arena, const ArenaLayout& layout, Links expected) {
    for (unsigned i = 0; layout.fastbins != 0 && i < kFastbins; ++i) {
      uint64_t chunk = word(arena + layout.fastbins + 8ull * i);
      if (chunk == 0) continue;
      Fastbin bin{chunk, kMinChunk + 16ull * i, expected};
      if (!begins_well(blocks, bin)) bin.links = Links::kPlain;
      if (!begins_well(blocks, bin)) return not_consistent(chunk);
      bins_.push(bin);
    }
    return {};
  }

  // Drops what is in them. A chunk that a list leads to for the second time, or that is in two of
  // them, is no live block any more by then.
  Verdict drop_all(BlockMap& blocks, Totals& totals) {
    while (!bins_.empty()) {
      for (std::size_t i = 0; i < bins_.size() && i < kAtOnce;) {
        Fastbin& bin = bins_[i];
        if (!bin.fits(blocks)) return not_consistent(bin.chunk);
        uint64_t user = bin.chunk + kHeader;
        bin.advance();
        drop_block(blocks, totals, user);
        if (bin.chunk == 0) {
          bin = bins_[bins_.size() - 1];
          bins_.pop();
        } else {
          fetch(bin.chunk + 8);
          fetch(bin.chunk + kHeader);
          blocks.fetch_edges(bin.chunk + kHeader);
          ++i;
        }
      }
    }
    return {};
  }

 private:
  static Verdict not_consistent(uint64_t chunk) {
    return invalid("a fastbin is not consistent", chunk);
  }

  List<Fastbin> bins_;
};

}  // namespace reachscan::heaps::glibc
