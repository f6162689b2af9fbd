// Finds live blocks that are held only by words that look stale.
//
// Reused memory still contains words from its former use: in unused slots of an array, or after the
// end of a buffer's contents. By now the address in such a word may belong to another block, and
// that block may be lost. One such word cannot be told from a pointer. But if blocks of a kind are
// leaked, a live block of that kind should be held the way live blocks are: by a root; at its
// start, by a field of its owner (places.hpp); or at the same offset as another block of its kind,
// by the same field of such an owner. What several owners do alike is intentional. A word at the
// very end of an owner counts only if it is a field (last_words.hpp). Among the roots, CPython's
// arenas count as reused memory, too, and words below 4 GiB may be numbers. Blocks not held in
// these ways are in doubt, and so is everything that only they hold, of whatever kind: one stale
// word often leads to thousands of lost blocks that hold each other (descendants.hpp). Where stale
// words lead to more blocks of a kind than are leaked, these words count. A large structure is in
// doubt only if most of its blocks are of kinds that are leaked.
//
// Blocks of any kind are in doubt, with their descendants, if only odd words lead to them that were
// probably partly overwritten (odd_words.hpp), or words that their owners give no meaning
// (unused_words.hpp). So is what leaked blocks lead to, if elsewhere only words in parts of blocks
// that are not in use lead there (spare_parts.hpp), ends of texts, words that look like links of
// free lists, or last words of large blocks that are no fields.
//
// Sometimes all leaked blocks of a kind are found in this way, and another one hangs on a word that
// nothing tells from a pointer as long as no such block is lost. So there is a second search, in
// which what is in doubt counts as leaked.
#pragma once

#include <optional>

#include "sweeper/stale/lookalike_search.hpp"

namespace reachscan::sweeper {

inline std::size_t count_unmarked(const BlockMap& blocks) {
  std::size_t unmarked = 0;
  blocks.each_unmarked([&](uint64_t) { ++unmarked; });
  return unmarked;
}

class Lookalikes {
 public:
  // Marked blocks in `in_use`, sorted by address, are in use for other reasons than pointers.
  Lookalikes(const heaps::Space& space, BlockMap& blocks, const List<uint64_t>& in_use = {})
      : space_(space),
        blocks_(blocks),
        in_use_(in_use),
        stale_words_(space, blocks),
        first_(space, blocks, stale_words_, in_use_, true) {}

  // If only suspects count, no block in doubt is one. Pointers to Python objects point past the
  // start of their blocks; their reference counts show which of them leak.
  static bool are_sought() { return control()->only_suspects == 0 && control()->python == 0; }

  // Unmarks every block in doubt. Everything reachable is marked.
  void doubt(Roots& roots) {
    std::size_t leaked = count_unmarked(blocks_);
    if (leaked == 0) return;
    stale_words_.find(roots);
    first_.run(roots);
    std::size_t doubtful = count_unmarked(blocks_) - leaked;
    if (doubtful == 0 || doubtful > kMostDoubtful * leaked) return;
    second_.emplace(space_, blocks_, stale_words_, in_use_, false);
    second_->run(roots);
  }

  // Words that hold nothing wherever they lead. There may be some only after doubt().
  bool has_unused_words() const { return stale_words_.has_unused(); }
  IgnoredWords unused_words() const { return stale_words_.unused(); }

  // Returns all blocks that doubt() left unmarked.
  List<uint64_t> in_doubt() const {
    std::size_t count = 0;
    each_in_doubt([&](uint64_t) { ++count; });
    if (count == 0) return {};
    List<uint64_t> found(map_memory, count);
    each_in_doubt([&](uint64_t block) { found.push(block); });
    return found;
  }

  // Returns whether a block that doubt() left unmarked was marked before.
  bool put_in_doubt(uint64_t block) const {
    return first_.is_in_question(block) || (second_ && second_->is_in_question(block));
  }

  // Calls visit(word) for each word in memory in use that leads to a block in doubt.
  template <typename Visit>
  void each_stale_word(Visit visit) const {
    first_.each_stale_word(visit);
    if (second_) second_->each_stale_word(visit);
  }

 private:
  static constexpr std::size_t kMostDoubtful = 16;  // per leaked block; more are no evidence

  template <typename Visit>
  void each_in_doubt(Visit visit) const {
    first_.each_in_doubt(visit);
    if (second_) second_->each_in_doubt(visit);
  }

  const heaps::Space& space_;
  BlockMap& blocks_;
  const List<uint64_t> in_use_;
  StaleWords stale_words_;
  LookalikeSearch first_;
  std::optional<LookalikeSearch> second_;
};

}  // namespace reachscan::sweeper
