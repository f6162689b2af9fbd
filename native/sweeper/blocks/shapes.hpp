// Recognises what a block is by words that only such a block would contain: a list node, for
// example, has neighbours that point back. Covers the std:: containers of libstdc++ and libc++.
#pragma once

#include "memory/block_map.hpp"

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
    if (size_ < 4 * heaps::kWord || heaps::load<uint32_t>(block_) > 1) return false;
    uint64_t parent = at(1), left = at(2), right = at(3);
    if (parent == 0 || parent == block_ || !space_.readable(parent, 4 * heaps::kWord)) return false;
    bool is_child = heaps::word(parent + 2 * heaps::kWord) == block_ ||
                    heaps::word(parent + 3 * heaps::kWord) == block_;
    bool is_top = heaps::word(parent + heaps::kWord) == block_;
    return (is_child || is_top) && is_child_of_this(left) && is_child_of_this(right);
  }

  // std::_List_node_base: next, previous.
  bool is_list_node() const { return has_links_at(0); }

  // Next and previous pointers anywhere in the block: the ring may belong to a C program.
  bool is_ring_node() const {
    for (uint64_t i = 0; i < kMaxLinkWords && heaps::kWord * (i + 2) <= size_; ++i)
      if (has_links_at(i)) return !differs_from_neighbours(at(i), at(i + 1));
    return false;
  }

  // The array of a hash table: one of its pointers leads to the head of the node list, which is in
  // the owner, after its pointer to the array and the array's length.
  bool is_bucket_array() const {
    for (uint64_t i = 0; heaps::kWord * (i + 1) <= size_; ++i) {
      if (at(i) == 0) continue;
      uint64_t owner = blocks_.block_of(at(i));
      if (owner == 0) return false;
      if (owner == at(i)) continue;
      uint64_t array = at(i) - 2 * heaps::kWord;
      return array >= owner && heaps::word(array) == block_ &&
             is_rounded(heaps::kWord * heaps::word(array + heaps::kWord));
    }
    return false;
  }

  // Starts with a next pointer to a block like itself, or is pointed to by one.
  bool is_chain_node(uint64_t slot) const {
    if (size_ < 2 * heaps::kWord) return false;
    uint64_t next = at(0);
    if (next != block_ && next % heaps::kWord == 0 && blocks_.is_live(next) && is_alike(next) &&
        ends_or_continues(next))
      return true;
    return slot != 0 && blocks_.is_live(slot) && is_alike(slot);
  }

  // The owner holds begin, end and end of capacity. At most 23 usable bytes were not requested.
  bool is_vector_body(uint64_t slot) const {
    if (slot == 0 || heaps::word(slot) != block_) return false;
    uint64_t owner = blocks_.block_of(slot);
    if (owner == 0 || blocks_.block_of(slot + 3 * heaps::kWord - 1) != owner) return false;
    uint64_t end = heaps::word(slot + heaps::kWord),
             capacity = heaps::word(slot + 2 * heaps::kWord);
    bool ordered = block_ <= end && end <= capacity && capacity <= block_ + size_;
    return ordered && capacity > block_ && block_ + size_ - capacity < 24;
  }

  // UTF-8 that fills more than half of the block, allowing for what rounding adds to a small one.
  bool is_text() const {
    uint64_t length = text_length(size_ < kLook ? size_ : kLook);
    if (length + kMaxCharacterBytes > kLook) return true;
    if (length < kMinTextBytes || (length < size_ && byte_at(length) != 0)) return false;
    // All bytes of an address may be letters: it is not text where the process has memory.
    if (length < heaps::kWord &&
        (space_.readable(at(0), 1) || heaps::may_be_stale_at(block_, at(0))))
      return false;
    return size_ <= 2 * length + 16;
  }

  // Returns whether a block was allocated for its text: no more than an allocator adds follows the
  // zero byte.
  bool text_fills_block() const {
    constexpr uint64_t kMaxAdded = 16 + kRest;
    constexpr uint64_t kMinExaminedBytes = 8;
    // Of a long text, only the end is examined.
    uint64_t begin = size_ <= kLook ? 0 : size_ - kMaxAdded - kMinExaminedBytes;
    uint64_t end = begin;
    while (end < size_ && byte_at(end) != 0) ++end;
    return end < size_ && size_ - end <= kMaxAdded;
  }

  bool is_zeros() const {
    for (uint64_t i = 0; heaps::kWord * (i + 1) <= examined_bytes(); ++i)
      if (at(i) != 0) return false;
    return true;
  }

  bool is_pointer_array() const {
    unsigned pointers = 0;
    for (uint64_t i = 0; heaps::kWord * (i + 1) <= examined_bytes(); ++i) {
      if (at(i) == 0) continue;
      if (!blocks_.is_live(at(i))) return false;
      ++pointers;
    }
    return pointers >= 2;
  }

 private:
  static constexpr uint64_t kLook = 4096;  // bytes of a large block that are examined
  static constexpr uint64_t kMinTextBytes = 4;
  static constexpr uint64_t kMaxCharacterBytes = 4;
  static constexpr uint64_t kMaxLinkWords = 8;
  // If the rest of a free chunk would be too small, the block gets all of it, so blocks requested
  // with one size differ by up to this much.
  static constexpr uint64_t kRest = 16;

  uint64_t at(uint64_t index) const { return heaps::word(block_ + heaps::kWord * index); }
  uint64_t examined_bytes() const { return size_ < kLook ? size_ : kLook; }
  // Returns whether a block has the same size. Does not search for the end of the other block,
  // which may be large and have many pointers to it.
  bool is_alike(uint64_t other) const { return blocks_.ends_at(other, other + size_); }
  // Returns whether a block begins like the last of a chain, or like one in the middle.
  bool ends_or_continues(uint64_t block) const {
    return heaps::word(block) == 0 || space_.readable(heaps::word(block), heaps::kWord);
  }
  // Returns whether a request of this many bytes may have returned the block.
  bool is_rounded(uint64_t asked) const { return asked <= size_ && size_ - asked < 24 + kRest; }

  bool has_links_at(uint64_t index) const {
    if (size_ < heaps::kWord * (index + 2)) return false;
    uint64_t self = block_ + heaps::kWord * index, next = at(index), previous = at(index + 1);
    if (next == self || next % heaps::kWord != 0 || !space_.readable(next, 2 * heaps::kWord))
      return false;
    if (heaps::word(next + heaps::kWord) != self || !space_.readable(previous, 2 * heaps::kWord))
      return false;
    return heaps::word(previous) == self;
  }

  // Of a ring, the member that owns the others: these are alike, or there is only one, which is
  // smaller.
  bool differs_from_neighbours(uint64_t next, uint64_t previous) const {
    uint64_t after = size_of_block_at(next), before = size_of_block_at(previous);
    bool is_pair = blocks_.block_of(next) == blocks_.block_of(previous);
    if (is_pair) return size_ > after + kRest;
    return distance(size_, after) > kRest && distance(size_, before) > kRest;
  }
  static uint64_t distance(uint64_t a, uint64_t b) { return a < b ? b - a : a - b; }

  uint64_t size_of_block_at(uint64_t address) const {
    uint64_t block = blocks_.block_of(address);
    return block == 0 ? 0 : blocks_.end_of(block) - block;
  }

  bool is_child_of_this(uint64_t child) const {
    return child == 0 || (blocks_.is_live(child) && heaps::word(child + heaps::kWord) == block_);
  }

  unsigned byte_at(uint64_t offset) const { return heaps::load<unsigned char>(block_ + offset); }

  // The number of bytes at the start of the block that are whole characters, at most `most`.
  uint64_t text_length(uint64_t most) const {
    uint64_t length = 0;
    while (uint64_t next = character_length(length, most)) length += next;
    return length;
  }

  // The number of bytes of the character at `offset`, 0 if there is none before `end`: printable
  // ASCII or white space, or well-formed UTF-8 (RFC 3629, but surrogates pass).
  uint64_t character_length(uint64_t offset, uint64_t end) const {
    if (offset >= end) return 0;
    unsigned first = byte_at(offset);
    if (first < 0x80) return (first >= 32 && first != 127) || (first >= 9 && first <= 13);
    uint64_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (length == 0 || offset + length > end) return 0;
    unsigned second = byte_at(offset + 1);
    bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    if (overlong || (first == 0xf4 && second >= 0x90)) return 0;
    for (uint64_t i = 1; i < length; ++i)
      if ((byte_at(offset + i) & 0xc0) != 0x80) return 0;
    return length;
  }

  const Space& space_;
  const BlockMap& blocks_;
  uint64_t block_;
  uint64_t size_;
};

// `slot`: the word through which the block was reached, 0 if unknown. All of the block must be
// readable. The most conclusive tests come first.
inline uint8_t shape_of(const Space& space, const BlockMap& blocks, uint64_t block, uint64_t size,
                        uint64_t slot) {
  if (size < heaps::kWord) return wire::kUnknownShape;
  ShapeTest test(space, blocks, block, size);
  if (test.is_vector_body(slot)) return wire::kVectorBody;
  if (test.is_tree_node()) return wire::kTreeNode;
  if (test.is_list_node()) return wire::kListNode;
  if (test.is_text()) return test.text_fills_block() ? wire::kString : wire::kText;
  if (test.is_zeros()) return wire::kZeros;
  if (test.is_pointer_array()) return wire::kPointerArray;
  if (test.is_chain_node(slot)) return wire::kChainNode;
  return wire::kUnknownShape;
}

}  // namespace reachscan::sweeper
