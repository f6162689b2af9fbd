// What a block looks like, told by words that only such a block would have: a node of a list is
// one whose neighbours point back. Layouts of std:: containers as in libstdc++ and libc++.
#pragma once

#include "heaps/block_map.hpp"

namespace reachscan::sweeper {

using heaps::BlockMap;
using heaps::Space;
using std::uint8_t;

class ShapeTest {
 public:
  ShapeTest(const Space& space, const BlockMap& blocks, uint64_t block, uint64_t size)
      : space_(space), blocks_(blocks), block_(block), size_(size) {}

  // std::_Rb_tree_node_base: colour, parent, left, right.
  bool is_tree_node() const {
    if (size_ < 32 || heaps::load<uint32_t>(block_) > 1) return false;
    uint64_t parent = at(1), left = at(2), right = at(3);
    if (parent == 0 || parent == block_ || !space_.readable(parent, 32)) return false;
    bool is_child = heaps::word(parent + 16) == block_ || heaps::word(parent + 24) == block_;
    bool is_top = heaps::word(parent + 8) == block_;
    return (is_child || is_top) && is_child_of_this(left) && is_child_of_this(right);
  }

  // std::_List_node_base: next, previous.
  bool is_list_node() const {
    if (size_ < 16) return false;
    uint64_t next = at(0), previous = at(1);
    if (next == block_ || !space_.readable(next, 16) || !space_.readable(previous, 16))
      return false;
    return next % 8 == 0 && heaps::word(next + 8) == block_ && heaps::word(previous) == block_;
  }

  // A next pointer first: to its like, or from its like.
  bool is_chain_node(uint64_t slot) const {
    if (size_ < 16) return false;
    uint64_t next = at(0);
    if (next != block_ && next % 8 == 0 && blocks_.is_live(next) && is_alike(next)) return true;
    return slot != 0 && blocks_.is_live(slot) && is_alike(slot);
  }

  // The owner holds begin, end and end of capacity. At most 23 usable bytes were not asked for.
  bool is_vector_body(uint64_t slot) const {
    if (slot == 0 || heaps::word(slot) != block_) return false;
    uint64_t owner = blocks_.block_of(slot);
    if (owner == 0 || blocks_.block_of(slot + 23) != owner) return false;
    uint64_t end = heaps::word(slot + 8), capacity = heaps::word(slot + 16);
    bool ordered = block_ <= end && end <= capacity && capacity <= block_ + size_;
    return ordered && capacity > block_ && block_ + size_ - capacity < 24;
  }

  // Text that fills more than half of the block, give or take what a small block rounds up.
  bool is_text() const {
    uint64_t length = 0;
    while (length < size_ && length < kLook && is_text_byte(block_ + length)) ++length;
    if (length == kLook) return true;
    if (length < kLeastText || (length < size_ && heaps::load<char>(block_ + length) != 0))
      return false;
    return size_ <= 2 * length + 16;
  }

  bool is_zeros() const {
    for (uint64_t i = 0; 8 * (i + 1) <= looked_at(); ++i)
      if (at(i) != 0) return false;
    return true;
  }

  bool is_pointer_array() const {
    unsigned pointers = 0;
    for (uint64_t i = 0; 8 * (i + 1) <= looked_at(); ++i) {
      if (at(i) == 0) continue;
      if (!blocks_.is_live(at(i))) return false;
      ++pointers;
    }
    return pointers >= 2;
  }

 private:
  static constexpr uint64_t kLook = 4096;  // bytes looked at, of large blocks
  static constexpr uint64_t kLeastText = 4;

  uint64_t at(uint64_t index) const { return heaps::word(block_ + 8 * index); }
  uint64_t looked_at() const { return size_ < kLook ? size_ : kLook; }
  // Whether a block has the same size. Where another ends is not looked for: it may be large, and
  // many may point to it.
  bool is_alike(uint64_t other) const { return blocks_.ends_at(other, other + size_); }

  bool is_child_of_this(uint64_t child) const {
    return child == 0 || (blocks_.is_live(child) && heaps::word(child + 8) == block_);
  }

  // ASCII that is printed or moves the line, and what UTF-8 uses for the rest.
  static bool is_text_byte(uint64_t address) {
    auto byte = heaps::load<unsigned char>(address);
    return (byte >= 32 && byte != 127 && byte != 0xc0 && byte != 0xc1 && byte < 0xf5) ||
           (byte >= 9 && byte <= 13);
  }

  const Space& space_;
  const BlockMap& blocks_;
  uint64_t block_;
  uint64_t size_;
};

// `slot`: the word that the block was reached by, 0 if it is not known. All of the block's memory
// must be readable. What proves more is asked first.
inline uint8_t shape_of(const Space& space, const BlockMap& blocks, uint64_t block, uint64_t size,
                        uint64_t slot) {
  if (size < 8) return wire::kUnknownShape;
  ShapeTest test(space, blocks, block, size);
  if (test.is_vector_body(slot)) return wire::kVectorBody;
  if (test.is_tree_node()) return wire::kTreeNode;
  if (test.is_list_node()) return wire::kListNode;
  if (test.is_text()) return wire::kText;
  if (test.is_zeros()) return wire::kZeros;
  if (test.is_pointer_array()) return wire::kPointerArray;
  if (test.is_chain_node(slot)) return wire::kChainNode;
  return wire::kUnknownShape;
}

}  // namespace reachscan::sweeper
