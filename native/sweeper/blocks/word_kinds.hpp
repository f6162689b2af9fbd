// Classifies words whose exact values say little: blocks with words of the same kinds are alike.
#pragma once

#include "arch/address_space.hpp"
#include "memory/block_map.hpp"

namespace reachscan::sweeper {

constexpr bool is_printable(unsigned byte) {
  return (byte >= 32 && byte < 127) || byte == 9 || byte == 10 || byte == 13;
}

// Printable ASCII, followed only by zero bytes.
constexpr bool is_text_word(std::uint64_t word) {
  if (!is_printable(word & 0xff)) return false;
  for (; word != 0; word >>= 8)
    if (!is_printable(word & 0xff)) return false;
  return true;
}

class WordKinds {
 public:
  static constexpr uint64_t kPlain = 0;  // no address in a heap or a file

  WordKinds(const heaps::Space& space, const heaps::BlockMap& blocks)
      : space_(space), blocks_(blocks) {}

  // Code addresses, and constants at the start of a block (its vtable), distinguish kinds.
  uint64_t of(uint64_t value, bool first) const {
    if (blocks_.block_of(value) != 0) return kHeapPointer;
    const bool is_address = value >= heaps::kPage && value >> arch::kAddressBits == 0;
    const abi::Mapping* m = is_address ? space_.find(value) : nullptr;
    if (m == nullptr || (m->flags & (abi::kFileBacked | abi::kFollowsFile)) == 0) return kPlain;
    bool constant = (m->perms & wire::kWrite) == 0 && (m->perms & wire::kRead) != 0;
    if ((m->perms & wire::kExecute) != 0 || (first && constant)) return value;
    return kFirstMapping + static_cast<uint64_t>(m - space_.begin());
  }

  // The same for the first word of a block. A text is another kind, but few characters may as well
  // be a number. What a constant text is does not distinguish kinds: it may be the name of a block.
  uint64_t of_first(uint64_t value) const {
    constexpr unsigned kFewest = 4;
    uint64_t kind = of(value, true);
    if (kind == kPlain && value >> 8 * (kFewest - 1) != 0 && is_text_word(value)) return kText;
    return kind == value && begins_text(value) ? of(value, false) : kind;
  }

  // Returns whether blocks that begin with it are of one kind whatever follows: objects of a class.
  bool tells_class(uint64_t value) const {
    return value != kPlain && value != kText && of_first(value) == value;
  }

 private:
  static constexpr uint64_t kText = ~0ull;
  // Mappings are numbered from here.
  static constexpr uint64_t kHeapPointer = 1, kFirstMapping = 2;

  bool begins_text(uint64_t address) const {
    constexpr unsigned kFewest = 3;
    if (!space_.readable(address, heaps::kWord)) return false;
    uint64_t word = heaps::word(address), printable = 0;
    if (space_.find(word) != nullptr) return false;
    for (; is_printable(word & 0xff); word >>= 8) ++printable;
    return printable >= kFewest && (word & 0xff) == 0;
  }

  const heaps::Space& space_;
  const heaps::BlockMap& blocks_;
};

}  // namespace reachscan::sweeper
