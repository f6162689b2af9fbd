// The word below the stack pointer that the kernel writes for the trampoline. It is dead, unless
// the stack ends there: coroutines may have stacks that are part of larger blocks.
#pragma once

#include <cstdint>

#include "helper/target/memory.hpp"

namespace reachscan::helper {

// Restores the word when it goes out of scope.
class SavedStackWord {
 public:
  SavedStackWord(const Memory& memory, std::uint64_t address)
      : memory_(memory),
        address_(address),
        known_(memory.try_read(address, &word_, sizeof word_)) {}
  SavedStackWord(const SavedStackWord&) = delete;
  SavedStackWord& operator=(const SavedStackWord&) = delete;

  ~SavedStackWord() {
    std::uint32_t now = 0;
    if (known_ && memory_.try_read(address_, &now, sizeof now) && now != word_)
      memory_.try_write(address_, &word_, sizeof word_);
  }

 private:
  const Memory& memory_;
  std::uint64_t address_;
  std::uint32_t word_ = 0;
  bool known_;
};

}  // namespace reachscan::helper
