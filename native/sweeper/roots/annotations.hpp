// What the program itself has declared about its memory, in the table that libreachscan writes
// (library/annotations.hpp).
#pragma once

#include "library/annotations.hpp"
#include "sweeper/roots/guarded.hpp"

namespace reachscan::sweeper {

using heaps::Range;
using heaps::Space;

class Annotations {
 public:
  // Looks for the table, which may not exist.
  explicit Annotations(const Space& space)
      : space_(space), header_(find_guarded<const library::Header>(space, library::kMagic)) {}

  // The table, which does not belong to the program's own memory; empty if there is none.
  Range table() const {
    auto start = reinterpret_cast<heaps::uint64_t>(header_);
    return header_ != nullptr ? Range{start, start + library::kBytes} : Range{0, 0};
  }

  // The file whose malloc forwards to the next definition; 0 if there is none.
  heaps::uint32_t forwarding_file() const {
    if (header_ == nullptr || header_->malloc_code == 0) return 0;
    const abi::Mapping* m = space_.find(header_->malloc_code);
    return m != nullptr ? m->file : 0;
  }

  // For the walker of pools.
  const library::Header* header() const { return header_; }

  // The number of annotations that did not fit into the table.
  heaps::uint64_t lost() const { return header_ != nullptr ? header_->lost : 0; }

  // Calls visit(start, end) for memory that the program declares a root. The word that names an
  // ignored block is itself a root.
  template <typename Visit>
  void each_root(Visit visit) const {
    each([&](const library::Entry& entry, library::Kind kind, heaps::uint64_t size) {
      auto word = reinterpret_cast<heaps::uint64_t>(&entry.start);
      if (kind == library::Kind::kIgnored) visit(word, word + sizeof entry.start);
      if (kind == library::Kind::kRoot) each_readable(entry.start, entry.start + size, visit);
    });
  }

  // Calls visit(range) for memory that the program excludes from the roots.
  template <typename Visit>
  void each_unseen(Visit visit) const {
    each([&](const library::Entry& entry, library::Kind kind, heaps::uint64_t size) {
      if (kind == library::Kind::kUnseen || kind == library::Kind::kPool)
        visit(Range{entry.start, entry.start + size});
    });
  }

 private:
  template <typename Visit>
  void each(Visit visit) const {
    if (header_ != nullptr) library::each_entry(*header_, visit);
  }

  // Visits the readable parts of [start, end), aligned to words.
  template <typename Visit>
  void each_readable(heaps::uint64_t start, heaps::uint64_t end, Visit visit) const {
    start = heaps::align_up(start, heaps::kWord);
    end &= ~7ull;
    for (const abi::Mapping& m : space_) {
      if (m.end <= start || m.start >= end || !Space::may_read(m)) continue;
      visit(m.start > start ? m.start : start, m.end < end ? m.end : end);
    }
  }

  const Space& space_;
  const library::Header* header_;
};

}  // namespace reachscan::sweeper
