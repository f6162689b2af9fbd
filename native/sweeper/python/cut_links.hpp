// Erases pointers through which CPython finds objects without holding them: the links of its
// collector's lists, which run through all containers, those of weak references, and what frames of
// 3.9 and 3.10 only have left. They would distort the search, since a leaked list is linked between
// two others that are not leaked, and references would count that nobody holds.
//
// This writes to the clone or to the copy, which nothing else uses.
#pragma once

#include "sweeper/python/objects.hpp"

namespace reachscan::sweeper {

class CutLinks {
 public:
  CutLinks(const heaps::Space& space, const BlockMap& blocks, const PythonObjects& objects)
      : space_(space) {
    blocks.each_live([&](uint64_t block) {
      uint64_t end = blocks.end_of(block), object = objects.in({block, end});
      if (object == 0) return;
      const PythonType& type = objects.type_of(object);
      if (type.before != 0) cut_out(object - kLinksBytes);
      if (type.is_weak_reference) clear(object + kWatched);
      if (type.is_old_frame) clear_frame(read_old_frame(object, type.basic_size, end));
    });
  }

 private:
  static constexpr uint64_t kLinksBytes = 16, kNext = 0, kPrevious = 8;  // PyGC_Head
  static constexpr uint64_t kFlags = 7;     // the low bits of links belong to the collector
  static constexpr uint64_t kWatched = 16;  // PyWeakReference::wr_object

  // The heads of the lists are not objects; their neighbours' links to them are cut. A word that is
  // not a link has no counterpart, for example while the collector counts or an object dies.
  void cut_out(uint64_t links) {
    cut(links + kNext, kPrevious, links);
    cut(links + kPrevious, kNext, links);
  }

  // Cuts the link at `own` and its counterpart in the neighbour.
  void cut(uint64_t own, uint64_t back, uint64_t links) {
    uint64_t neighbour = heaps::word(own) & ~kFlags;
    if (!is_own(neighbour, there_) || (heaps::word(neighbour + back) & ~kFlags) != links) return;
    clear(own);
    *reinterpret_cast<Raw*>(neighbour + back) = 0;
  }

  void clear_frame(const OldFrame& frame) {
    if (frame.generator == 0) return;
    clear(frame.generator);
    for (uint64_t at = frame.left.start; at + heaps::kWord <= frame.left.end; at += heaps::kWord)
      clear(at);
  }

  void clear(uint64_t at) {
    if (is_own(at, here_)) *reinterpret_cast<Raw*>(at) = 0;
  }

  // Returns whether two words at `address` are in private memory that the clone can write to.
  bool is_own(uint64_t address, Range& around) const {
    if (address == 0 || address % sizeof(uint64_t) != 0) return false;
    if (!around.contains(address)) {
      const abi::Mapping* m = space_.find(address);
      bool is_own = m != nullptr && heaps::Space::may_read(*m) && (m->perms & wire::kWrite) != 0 &&
                    (m->perms & wire::kShared) == 0;
      around = is_own ? Range{m->start, m->end} : Range{0, 0};
    }
    return around.contains(address) && around.contains(address + sizeof(uint64_t));
  }

  typedef uint64_t __attribute__((may_alias)) Raw;

  const heaps::Space& space_;
  // The last mappings found, in which the next link usually is, too.
  Range here_{0, 0}, there_{0, 0};
};

}  // namespace reachscan::sweeper
