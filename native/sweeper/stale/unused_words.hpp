// Words in memory in use that certainly hold nothing, since their owners give them no meaning. What
// only they lead to is in doubt, of whatever kind it is.
#pragma once

#include "sweeper/stale/bounded_buffers.hpp"
#include "sweeper/stale/lua_values.hpp"
#include "sweeper/stale/odd_words.hpp"
#include "sweeper/stale/python_words.hpp"
#include "sweeper/stale/short_strings.hpp"
#include "sweeper/stale/size_headers.hpp"
#include "sweeper/stale/sized_texts.hpp"
#include "sweeper/stale/uninitialised_blocks.hpp"
#include "sweeper/stale/uses.hpp"

namespace reachscan::sweeper {

class UnusedWords {
 public:
  UnusedWords(const heaps::Space& space, const BlockMap& blocks, Targets& targets)
      : bounded_buffers_(space, blocks, targets),
        lua_values_(space, blocks, targets),
        python_words_(space, blocks, targets),
        short_strings_(space, blocks, targets),
        size_headers_(space, blocks, targets),
        sized_texts_(space, blocks, targets),
        uninitialised_blocks_(space, blocks, targets) {}

  // Searches marked blocks, and roots; of a large heap, samples. Adds what these words lead to, but
  // not that of ends of texts.
  void find(Roots& roots) {
    bounded_buffers_.find();
    lua_values_.find(roots);
    python_words_.find(roots);
    short_strings_.find();
    size_headers_.find();
    sized_texts_.find();
    uninitialised_blocks_.find();
  }

  bool has(const Word& word) const {
    if (python_words_.contain(word.owner, word.slot)) return true;
    return word.owner != 0 && (OddWords::ends_text(word.owner, word.slot, word.value) ||
                               bounded_buffers_.end_before(word.owner, word.slot) ||
                               lua_values_.is_unused(word.owner, word.slot) ||
                               short_strings_.contain(word.owner, word.slot) ||
                               size_headers_.is_stale(word.owner, word.target, word.value) ||
                               sized_texts_.end_before(word.owner, word.slot) ||
                               uninitialised_blocks_.contain(word.owner, word.slot));
  }

 private:
  BoundedBuffers bounded_buffers_;
  LuaValues lua_values_;
  PythonWords python_words_;
  ShortStrings short_strings_;
  SizeHeaders size_headers_;
  SizedTexts sized_texts_;
  UninitialisedBlocks uninitialised_blocks_;
};

}  // namespace reachscan::sweeper
