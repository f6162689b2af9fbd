// Objects of Lua 5.1 to 5.4, recognised by what they lead to. Layouts are those of lobject.h,
// lstate.h and lfunc.h, as compiled for 64-bit processors.
#pragma once

#include "memory/block_map.hpp"
#include "memory/rounding.hpp"

namespace reachscan::sweeper {

// Where objects of a release have what is looked for.
struct LuaLayout {
  struct {
    uint8_t bytes, slots, array, nodes, bytes_of_node;  // `slots`: how many the array has
  } table;
  struct {
    uint8_t global, limit, stack;  // `global`: what all threads share
  } thread;
  struct {
    uint8_t type, constants, link;
  } function;  // as compiled
  bool has_short_strings;
};

class LuaObjects {
 public:
  static constexpr LuaLayout kLayouts[] = {
      {{56, 12, 16, 24, 24}, {24, 40, 48}, {10, 56, 120}, true},   // 5.4
      {{56, 12, 16, 24, 32}, {24, 48, 56}, {9, 48, 112}, true},    // 5.3
      {{56, 12, 16, 24, 40}, {24, 48, 56}, {9, 16, 112}, false},   // 5.2
      {{64, 56, 24, 32, 40}, {32, 56, 64}, {9, 16, 104}, false}};  // 5.1

  // A value, and the key of a node, are followed by their type.
  static constexpr uint64_t kType = 8, kValue = 16, kKey = 16, kKeyType = 24;
  static constexpr uint64_t kText = 24, kTableLink = 48;

  LuaObjects(const heaps::BlockMap& blocks, const LuaLayout& layout)
      : blocks_(blocks), layout_(layout) {}

  // Any object begins with the address of another one; its type follows.
  static uint8_t type_of(uint64_t object) { return heaps::load<uint8_t>(object + kType); }

  // A table without nodes leads to one that all of these share. After the address of its nodes is
  // that of the end of those never used.
  bool is_table(uint64_t block) const {
    if (!has_bytes(block, layout_.table.bytes) || !is_object(block, kTable)) return false;
    uint64_t nodes = heaps::word(block + layout_.table.nodes);
    uint64_t unused_end = heaps::word(block + layout_.table.nodes + heaps::kWord);
    uint64_t log = heaps::load<uint8_t>(block + kLogNodes);
    if (log == 0 && nodes != 0 && blocks_.block_of(nodes) == 0)
      return unused_end == 0 || unused_end == nodes;
    if (log > kMostLogNodes || !is_start(nodes)) return false;
    uint64_t bytes = uint64_t{layout_.table.bytes_of_node} << log;
    return unused_end >= nodes && unused_end <= nodes + bytes && fits(nodes, bytes);
  }

  uint64_t bytes_of_node() const { return layout_.table.bytes_of_node; }
  // These return the block, 0 if there is none.
  uint64_t nodes_of(uint64_t table) const { return start_at(table + layout_.table.nodes); }
  uint64_t array_of(uint64_t table) const {
    uint64_t array = start_at(table + layout_.table.array);
    uint64_t bytes = kValue * heaps::load<uint32_t>(table + layout_.table.slots);
    return array != 0 && bytes <= blocks_.end_of(array) - array ? array : 0;
  }

  // Returns the stack of a thread (a coroutine, or the main one), 0 if the block is none.
  uint64_t stack_of(heaps::Range block) const {
    for (uint64_t thread : {block.start, block.start + kExtraSpace}) {
      if (!is_thread(block, thread)) continue;
      uint64_t stack = start_at(thread + layout_.thread.stack);
      uint64_t limit = heaps::word(thread + layout_.thread.limit);
      bool is_inside = stack != 0 && limit > stack && limit < blocks_.end_of(stack);
      if (is_inside && (limit - stack) % kValue == 0) return stack;
    }
    return 0;
  }

  // Returns the constants of a compiled function, 0 if the block is none, or has none.
  uint64_t constants_of(uint64_t block) const {
    if (!has_bytes(block, layout_.function.link + heaps::kWord)) return 0;
    return is_object(block, layout_.function.type) ? start_at(block + layout_.function.constants)
                                                   : 0;
  }

  bool is_string(uint64_t block) const {
    if (!has_bytes(block, kText)) return false;
    if (!is_object(block, kString) && !is_object(block, kLongString)) return false;
    uint64_t length = length_of(block), bytes = kText + length + 1;
    return length < bytes && fits(block, bytes) && heaps::load<uint8_t>(block + bytes - 1) == 0;
  }
  uint64_t end_of_text(uint64_t string) const { return string + kText + length_of(string) + 1; }

  // Returns whether the word is the one that links objects while garbage is collected. It is not
  // initialised.
  bool is_link(uint64_t owner, uint64_t slot) const {
    if (slot - owner == kTableLink) return is_table(owner);
    return slot - owner == layout_.function.link && constants_of(owner) != 0;
  }

 private:
  static constexpr uint8_t kString = 4, kLongString = 0x14, kTable = 5, kThread = 8;
  static constexpr uint64_t kLogNodes = 11, kMostLogNodes = 24;
  static constexpr uint64_t kShortLength = 11, kLength = 16;
  static constexpr uint64_t kMostGlobal = 4096;  // bytes of what threads share
  static constexpr uint64_t kExtraSpace = 8;     // which a program may have ahead of a thread

  bool is_start(uint64_t value) const { return value != 0 && blocks_.block_of(value) == value; }
  uint64_t start_at(uint64_t slot) const {
    uint64_t value = heaps::word(slot);
    return is_start(value) ? value : 0;
  }

  bool has_bytes(uint64_t block, uint64_t bytes) const {
    return blocks_.end_of(block) - block >= bytes;
  }
  bool is_object(uint64_t object, uint8_t type) const {
    if (type_of(object) != type) return false;
    uint64_t next = heaps::word(object);
    return next == 0 || blocks_.block_of(next) != 0;
  }

  // Threads lead to what they share, and that leads to the main thread, which does so, too.
  bool is_thread(heaps::Range block, uint64_t thread) const {
    if (!is_like_thread(block, thread)) return false;
    uint64_t global = heaps::word(thread + layout_.thread.global),
             shared = blocks_.block_of(global);
    if (shared == 0 || global % heaps::kWord != 0) return false;
    uint64_t end = blocks_.end_of(shared), most = global + kMostGlobal;
    for (uint64_t at = global; at + heaps::kWord <= end && at < most; at += heaps::kWord) {
      uint64_t main = heaps::word(at), holder = blocks_.block_of(main);
      if (holder == 0 || (main != holder && main != holder + kExtraSpace)) continue;
      if (!is_like_thread(blocks_.range_of(holder), main)) continue;
      if (heaps::word(main + layout_.thread.global) == global) return true;
    }
    return false;
  }
  bool is_like_thread(heaps::Range block, uint64_t thread) const {
    uint64_t end = thread + layout_.thread.stack + heaps::kWord;
    return end <= block.end && is_object(thread, kThread);
  }

  bool fits(uint64_t block, uint64_t bytes) const {
    return heaps::may_hold_request(blocks_.end_of(block) - block, bytes);
  }

  uint64_t length_of(uint64_t string) const {
    bool is_short = layout_.has_short_strings && type_of(string) == kString;
    return is_short ? heaps::load<uint8_t>(string + kShortLength) : heaps::word(string + kLength);
  }

  const heaps::BlockMap& blocks_;
  const LuaLayout& layout_;
};

}  // namespace reachscan::sweeper
