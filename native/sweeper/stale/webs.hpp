// Blocks in doubt, grouped by the head that leads to them: a block that a stale word leads to. Webs
// that have blocks in common are joined, so that it does not matter which head comes first.
#pragma once

#include "sweeper/blob/host.hpp"
#include "sweeper/mark/scratch.hpp"

namespace reachscan::sweeper {

class Webs {
 public:
  // `blocks`: at least one, sorted by address. Only these are part of a web.
  explicit Webs(const heaps::List<uint64_t>& blocks)
      : blocks_(blocks),
        members_(map_memory, blocks.size()),
        webs_(map_memory, blocks.size()),
        web_of_(blocks.size()) {}

  // Begins a web. Calls visit(block) for its head and all that is added meanwhile. Does nothing if
  // the head is part of another web.
  template <typename Visit>
  void add(uint64_t head, Visit visit) {
    if (web_of_[heaps::lower_bound(blocks_, head)] != 0) return;
    webs_.push({members_.size(), webs_.size() + 1, 0, 0});
    enter(head);
    for (std::size_t i = webs_[webs_.size() - 1].first; i < members_.size(); ++i)
      visit(members_[i]);
  }

  // Adds a block to the last web, or joins that with the web it is part of.
  void enter(uint64_t block) {
    std::size_t at = heaps::lower_bound(blocks_, block);
    if (web_of_[at] != 0) return join(web_of_[at]);
    web_of_[at] = webs_.size();
    members_.push(block);
    ++joined(webs_.size()).blocks;
  }

  // Counts a block of the last web as strange.
  void count_strange() { ++joined(webs_.size()).strange; }

  // Calls visit(first, end, blocks, strange) for each web: its own members, of which the head is
  // the first, and the numbers of blocks and of strange ones in all that are joined with it.
  template <typename Visit>
  void each(Visit visit) {
    for (std::size_t web = 1; web <= webs_.size(); ++web) {
      const uint64_t* members = members_.begin();
      std::size_t end = web < webs_.size() ? webs_[web].first : members_.size();
      const Web& all = joined(web);
      visit(members + webs_[web - 1].first, members + end, all.blocks, all.strange);
    }
  }

 private:
  struct Web {
    std::size_t first;   // its head, among the members
    std::size_t joined;  // a web that counts for it, or one on the way there; numbered from 1
    std::size_t blocks, strange;
  };

  Web& joined(std::size_t web) {
    while (webs_[web - 1].joined != web) {
      std::size_t& next = webs_[web - 1].joined;
      web = next = webs_[next - 1].joined;
    }
    return webs_[web - 1];
  }

  void join(std::size_t other) {
    Web &last = joined(webs_.size()), &all = joined(other);
    if (&last == &all) return;
    all.blocks += last.blocks;
    all.strange += last.strange;
    last.joined = all.joined;
  }

  const heaps::List<uint64_t>& blocks_;
  heaps::List<uint64_t> members_;  // those of a web are contiguous, its head first
  heaps::List<Web> webs_;
  Scratch<std::size_t> web_of_;  // of a block, numbered from 1
};

}  // namespace reachscan::sweeper
