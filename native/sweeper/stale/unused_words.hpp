// Words in memory in use that certainly hold nothing, since their owners give them no meaning. What
// only they lead to is in doubt, of whatever kind it is.
#pragma once

#include "sweeper/stale/bounded_buffers.hpp"
#include "sweeper/stale/free_slices.hpp"
#include "sweeper/stale/lua_values.hpp"
#include "sweeper/stale/odd_words.hpp"
#include "sweeper/stale/python_words.hpp"
#include "sweeper/stale/qt_hashes.hpp"
#include "sweeper/stale/short_strings.hpp"
#include "sweeper/stale/size_headers.hpp"
#include "sweeper/stale/sized_texts.hpp"
#include "sweeper/stale/uninitialised_blocks.hpp"
#include "sweeper/stale/uses.hpp"

namespace reachscan::sweeper {

class UnusedWords {
 public:
  UnusedWords(const heaps::Space& space, const BlockMap& blocks, Targets& targets)
      : blocks_(blocks),
        bounded_buffers_(blocks, targets),
        free_slices_(blocks, targets),
        lua_values_(space, blocks, targets),
        python_words_(space, blocks, targets),
        qt_hashes_(blocks, targets),
        short_strings_(space, blocks, targets),
        size_headers_(space, blocks, targets),
        sized_texts_(blocks, targets),
        uninitialised_blocks_(space, blocks, targets) {}

  // Searches marked blocks, and roots; of a large heap, samples. Adds what these words lead to, but
  // not that of ends of texts.
  void find(Roots& roots) {
    visit_marked_samples(blocks_, [this](heaps::Range block) {
      bounded_buffers_.look_at(block);
      free_slices_.look_at(block);
      qt_hashes_.look_at(block.start);
      sized_texts_.look_at(block);
      uninitialised_blocks_.look_at(block);
    });
    free_slices_.sort();
    lua_values_.find(roots);
    python_words_.find(roots);
    short_strings_.find();
    size_headers_.find();
  }

  // Returns whether the word is part of an item in a container that is in use.
  bool is_in_item(const Word& word) const {
    return word.owner != 0 && (bounded_buffers_.is_in_item(word.owner, word.slot) ||
                               qt_hashes_.is_in_node(word.owner, word.slot));
  }

  [[gnu::noinline]] bool has(const Word& word) const {
    if (python_words_.contain(word.owner, word.slot)) return true;
    return word.owner != 0 && (are_outside_contents(word.owner, word.slot) ||
                               OddWords::ends_text(word.owner, word.slot, word.value) ||
                               lua_values_.is_unused(word.owner, word.slot) ||
                               size_headers_.is_stale(word.owner, word.target, word.value));
  }

  // Of these, the words that a block has by itself, wherever they and others lead.
  [[gnu::noinline]] bool are_outside_contents(uint64_t owner, uint64_t slot) const {
    return bounded_buffers_.has_unused(owner, slot) || free_slices_.contain(slot) ||
           qt_hashes_.end_before(owner, slot) || short_strings_.contain(owner, slot) ||
           sized_texts_.end_before(owner, slot) || uninitialised_blocks_.contain(owner, slot);
  }

 private:
  const BlockMap& blocks_;
  BoundedBuffers bounded_buffers_;
  FreeSlices free_slices_;
  LuaValues lua_values_;
  PythonWords python_words_;
  QtHashes qt_hashes_;
  ShortStrings short_strings_;
  SizeHeaders size_headers_;
  SizedTexts sized_texts_;
  UninitialisedBlocks uninitialised_blocks_;
};

}  // namespace reachscan::sweeper
