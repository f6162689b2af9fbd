// Fastbins: chunks that are free, though they look allocated, in lists that may be long.
//
// A list in free order jumps around in memory, and each step waits for the one before. Advancing
// every list of every arena in turn keeps as many reads in flight as there are lists. If that is
// not enough, long lists are also followed from chunks in their middle, on all threads. These are
// guesses: what is found from one counts only if a list arrives there from its head.
#pragma once

#include "heaps/glibc/find_arenas.hpp"
#include "heaps/glibc/free_lists.hpp"

namespace reachscan::heaps::glibc {

// A list, or the part of one after a guess, as far as it has been followed. Threads write to
// several at once, so none of them share a cache line.
struct alignas(kLine) Fastbin {
  uint64_t chunk;  // the next one; 0: none
  uint64_t chunk_size;
  Links links;
  bool fits_size = true;  // false: the next chunk has another size
  uint64_t guess = 0;     // the chunk where the part starts; 0: this is a list from its head
  uint64_t marked = 0;
  uint64_t* pair = nullptr;  // of the map, for the next chunk; only while this is followed

  uint64_t user() const { return chunk + kHeader; }
  bool fits(const BlockMap& blocks) const {
    return blocks.is_live(user()) && glibc::chunk_size(chunk) == chunk_size;
  }
  void advance() { chunk = follow(user(), links); }
};

// No more reads than this are ever in flight.
constexpr std::size_t kAtOnce = 64;
// A list decoded in the wrong way never stays inside known blocks for this many steps.
constexpr std::size_t kConclusiveSteps = 64;

// Advances by up to `steps`. Returns false if something does not fit.
inline bool advances_validly(const BlockMap& blocks, Fastbin& bin, std::size_t steps) {
  for (; bin.chunk != 0 && steps > 0; --steps, bin.advance())
    if (!bin.fits(blocks)) return false;
  return true;
}

inline bool has_valid_start(const BlockMap& blocks, Fastbin bin) {
  return advances_validly(blocks, bin, kConclusiveSteps);
}

// Marks the chunks of lists and parts, as far as they fit, up to guesses, which are marked already.
// Each thread takes some and advances them in turn.
template <bool kShared>
class Following {
 public:
  // `most`: chunks that are marked of each.
  Following(BlockMap& blocks, const List<Fastbin*>& bins, uint64_t most)
      : blocks_(blocks), bins_(bins), most_(most) {}

  // Called on each thread, and adds to `totals`.
  void run(Totals& totals) {
    Turn turn;
    while (take_turn(turn)) advance(turn);
    __atomic_add_fetch(&totals.blocks, turn.totals.blocks, __ATOMIC_RELAXED);
    __atomic_add_fetch(&totals.bytes, turn.totals.bytes, __ATOMIC_RELAXED);
  }

 private:
  // What one thread follows.
  struct Turn {
    Fastbin* bins[kAtOnce];
    std::size_t count = 0;
    Totals totals;
  };

  // Replaces what cannot continue. Returns false if nothing is left.
  bool take_turn(Turn& turn) {
    for (std::size_t i = 0; i < kAtOnce; ++i) {
      while (i < turn.count && !can_continue(*turn.bins[i])) turn.bins[i] = turn.bins[--turn.count];
      while (i == turn.count) {
        std::size_t next = __atomic_fetch_add(&taken_, 1, __ATOMIC_RELAXED);
        if (next >= bins_.size()) return turn.count != 0;
        bins_[next]->pair = blocks_.pair_for_start(bins_[next]->user());
        if (can_continue(*bins_[next])) turn.bins[turn.count++] = bins_[next];
      }
    }
    return true;
  }

  bool can_continue(const Fastbin& bin) const {
    const uint64_t bit = 1ull << bit_of(bin.user());
    return bin.fits_size && bin.chunk != 0 && bin.marked < most_ && bin.pair != nullptr &&
           (relaxed(bin.pair) & ~relaxed(bin.pair + 1) & bit) != 0;
  }

  void advance(Turn& turn) {
    // The processor looks ahead for a limited number of instructions, and stalls on a TLB miss even
    // for a prefetch. So nothing else is done between these reads.
    uint64_t sizes[kAtOnce], links[kAtOnce];
    for (std::size_t i = 0; i < turn.count; ++i) {
      sizes[i] = chunk_size(turn.bins[i]->chunk);
      links[i] = word(turn.bins[i]->user());
    }
    for (std::size_t i = 0; i < turn.count; ++i) {
      Fastbin& bin = *turn.bins[i];
      bin.fits_size = sizes[i] == bin.chunk_size;
      if (!bin.fits_size || !set_mark<kShared>(bin.pair + 1, 1ull << bit_of(bin.user()))) continue;
      turn.totals.subtract(bin.chunk_size - kWord);
      bin.chunk = read_link(links[i], bin.user(), bin.links);
      ++bin.marked;
      bin.pair = blocks_.pair_for_start(bin.user());
      fetch(bin.pair);
    }
  }

  BlockMap& blocks_;
  const List<Fastbin*>& bins_;
  uint64_t most_;
  std::size_t taken_ = 0;
};

class Fastbins {
 public:
  explicit Fastbins(MapMemory map)
      : lists_(map, kMaxArenas * kFastbins),
        parts_(map, kMaxGuesses),
        open_(map, kMaxArenas * kFastbins + kMaxGuesses) {}

  // Links are decoded as `expected`, like those of the caches, unless that does not fit.
  Verdict add(const BlockMap& blocks, uint64_t arena, const ArenaLayout& layout, Links expected) {
    for (unsigned i = 0; layout.fastbins != 0 && i < kFastbins; ++i) {
      uint64_t chunk = word(arena + layout.fastbins + uint64_t{kWord} * i);
      if (chunk == 0) continue;
      Fastbin bin{chunk, kMinChunk + kFastbinStep * i, expected};
      if (!has_valid_start(blocks, bin)) bin.links = Links::kPlain;
      if (!has_valid_start(blocks, bin)) return not_consistent(chunk);
      lists_.push(bin);
    }
    return {};
  }

  // Drops the chunks in all lists. They are marked until then, so a chunk visited twice by one
  // list, or by two of them, is known.
  Verdict drop_all(const Enumeration& found) {
    auto& [blocks, totals, on_threads] = found;
    if (lists_.empty()) return {};
    follow_lists(found, kLong);
    open(lists_);
    if (!open_.empty() && open_.size() < kAtOnce) {
      guess_parts(blocks, open_[0]->links);
      open(parts_);
      follow_open(found);
      for (Fastbin& list : lists_) join_parts(totals, list);
      for (const Fastbin& part : parts_) restore(blocks, totals, part);
    }
    follow_lists(found, ~0ull);
    blocks.drop_marked();
    for (const Fastbin& list : lists_)
      if (list.chunk != 0) return not_consistent(list.chunk);
    return {};
  }

 private:
  static constexpr uint64_t kLong = 1024;  // length of a list for which guesses are worthwhile
  static constexpr unsigned kMaxGuesses = 1024;
  // A block that was in a list before it was allocated may still hold the link, which leads to a
  // chunk that is in a list now within a few steps.
  static constexpr std::size_t kStaleSteps = 8;
  static constexpr unsigned kProbes = 64;            // blocks examined per guess
  static constexpr uint64_t kSearchBytes = 1 << 16;  // bytes

  static Verdict not_consistent(uint64_t chunk) {
    return invalid("a fastbin is not consistent", chunk);
  }

  void open(List<Fastbin>& bins) {
    for (Fastbin& bin : bins)
      if (bin.chunk != 0) open_.push(&bin);
  }

  void follow_lists(const Enumeration& found, uint64_t most) {
    open_.clear();
    open(lists_);
    Following<false>(found.blocks, open_, most).run(found.totals);
    open_.clear();
  }

  void follow_open(const Enumeration& found) {
    const uint64_t bytes = bytes_of(found.blocks);
    if (found.on_threads.count(bytes) == 1)
      return Following<false>(found.blocks, open_, ~0ull).run(found.totals);
    struct Work {
      Following<true> following;
      Totals& totals;
    } work{{found.blocks, open_, ~0ull}, found.totals};
    auto follow = [](void* self) {
      auto& [following, totals] = *static_cast<Work*>(self);
      following.run(totals);
    };
    found.on_threads(bytes, follow, &work);
  }

  static uint64_t bytes_of(const BlockMap& blocks) {
    uint64_t bytes = 0;
    for (const Region& region : blocks.regions) bytes += region.end - region.start;
    return bytes;
  }

  // Guesses, evenly spread over the heap.
  void guess_parts(BlockMap& blocks, Links links) {
    uint64_t bytes = bytes_of(blocks), next = 0;
    for (const Region& region : blocks.regions) {
      for (; next < region.end - region.start; next += bytes / kMaxGuesses + 1)
        guess_part(blocks, {region.start + next, region.end}, links);
      next -= region.end - region.start;
    }
  }

  // Guesses a chunk that a link near the start of `range` leads to.
  void guess_part(BlockMap& blocks, Range range, Links links) {
    const Cluster* cluster = blocks.cluster_of(range.start);
    uint64_t last = range.end - range.start < kSearchBytes ? range.end : range.start + kSearchBytes;
    uint64_t user = range.start;
    for (unsigned i = 0; i < kProbes; ++i, user += kChunkAlignment) {
      user = cluster->next_edge(user, last);
      if (user == 0) return;
      if (!blocks.is_live(user)) continue;
      Fastbin part{user - kHeader, chunk_size(user - kHeader), links};
      if (part.chunk_size >= kMinChunk + kFastbinStep * kFastbins) continue;
      if (!advances_validly(blocks, part, kStaleSteps) || part.chunk == 0 || !part.fits(blocks))
        continue;
      if (blocks.mark(part.user()) == 0) return;
      part.guess = part.chunk;
      part.advance();
      parts_.push(part);
      return;
    }
  }

  // A list that has arrived at a guess continues where the last of its parts stops.
  void join_parts(Totals& totals, Fastbin& list) {
    for (std::size_t i = 0; i < parts_.size();) {
      Fastbin& part = parts_[i++];
      if (part.guess != list.chunk || part.chunk_size != list.chunk_size ||
          part.links != list.links)
        continue;
      totals.subtract(usable_bytes(list.user()));
      list.chunk = part.chunk;
      part = parts_[parts_.size() - 1];
      parts_.pop();
      i = 0;
    }
  }

  // No list arrived at this part. It may have marked chunks of a list that could not continue
  // because of that.
  static void restore(BlockMap& blocks, Totals& totals, Fastbin part) {
    part.chunk = part.guess;
    blocks.clear_mark(part.user());
    for (; part.marked > 0; --part.marked) {
      part.advance();
      blocks.clear_mark(part.user());
      totals.add(usable_bytes(part.user()));
    }
  }

  List<Fastbin> lists_;
  List<Fastbin> parts_;
  List<Fastbin*> open_;  // lists and parts that are followed at once
};

}  // namespace reachscan::heaps::glibc
