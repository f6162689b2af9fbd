// Words in blocks in use that certainly hold nothing, since their owners give them no meaning. What
// only they lead to is in doubt, of whatever kind it is.
#pragma once

#include "sweeper/stale/lua_values.hpp"
#include "sweeper/stale/odd_words.hpp"
#include "sweeper/stale/short_strings.hpp"
#include "sweeper/stale/size_headers.hpp"
#include "sweeper/stale/uses.hpp"

namespace reachscan::sweeper {

class UnusedWords {
 public:
  UnusedWords(const heaps::Space& space, const BlockMap& blocks)
      : lua_values_(space, blocks), size_headers_(space, blocks), short_strings_(space, blocks) {}

  // Searches marked blocks; of a large heap, samples.
  void find(Roots& roots) {
    lua_values_.find(roots);
    size_headers_.find();
    short_strings_.find();
  }

  bool found_any() const {
    return lua_values_.found_any() || size_headers_.found_any() || short_strings_.found_any();
  }

  bool has(const Word& word) const {
    return word.owner != 0 && (OddWords::ends_text(word.owner, word.slot, word.value) ||
                               short_strings_.contain(word.owner, word.slot) ||
                               lua_values_.is_unused(word.owner, word.slot) ||
                               size_headers_.is_stale(word.owner, word.target, word.value));
  }

  // Calls visit(block) for each block that such words lead to, some of them repeatedly; not for
  // those in which a text ends.
  template <typename Visit>
  void each_target(Visit visit) const {
    lua_values_.each_target(visit);
    size_headers_.each_target(visit);
    short_strings_.each_target(visit);
  }

 private:
  LuaValues lua_values_;
  SizeHeaders size_headers_;
  ShortStrings short_strings_;
};

}  // namespace reachscan::sweeper
