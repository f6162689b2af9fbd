// Checks registers, signal frames, and the recorder's own records of its threads.
#include "helper/recording/presence.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "arch/address_space.hpp"
#include "arch/signal_frame.hpp"
#include "wire/inside_allocator.hpp"

namespace reachscan::helper {
namespace {

using recorder::Injection;
using recorder::Presence;

// Searches threads for ranges of code.
class CodeSearch {
 public:
  CodeSearch(const Memory& memory, const abi::CodeRanges& code)
      : memory_(memory), code_(code), hull_(code.ranges[0]), words_(abi::kHandlerWords) {
    for (std::uint64_t i = 1; i < code.count; ++i) {
      hull_.start = std::min(hull_.start, code.ranges[i].start);
      hull_.end = std::max(hull_.end, code.ranges[i].end);
    }
  }

  // Returns whether the thread is in the code, or a handler that has not returned interrupted it
  // there: the kernel saves the interrupted registers on the stack.
  bool finds(const StoppedThread& thread) {
    std::uint64_t sp = arch::stack_pointer(thread.registers);
    if (code_.contains(arch::program_counter(thread.registers))) return true;
    constexpr std::size_t kWord = sizeof words_[0];
    constexpr std::size_t kBefore = 1 + arch::Context<8>::kProgramCounter / kWord;
    auto read = [this](std::uint64_t at, void* buffer, std::size_t length) {
      return memory_.try_read(at, buffer, length);
    };
    std::size_t count = memory_.read_prefix(sp, words_.data(), words_.size() * kWord) / kWord;
    for (std::size_t i = kBefore; i < count; ++i) {
      if (!hull_.contains(words_[i]) || !code_.contains(words_[i])) continue;
      std::size_t frame = i - kBefore;
      if (arch::context_of_frame(sp + frame * kWord, words_[frame], read) != 0) return true;
    }
    return false;
  }

 private:
  const Memory& memory_;
  const abi::CodeRanges& code_;
  abi::CodeRange hull_;
  std::vector<std::uint64_t> words_;  // of a stack
};

// The code sets a mark whenever it calls the allocator, or it jumps: nothing returns to it
// unmarked.
class Marks {
 public:
  Marks(const Memory& memory, const recorder::ThreadTable& table)
      : memory_(memory), table_(table), keys_(table.count) {
    memory.read(wire::Step::kReadMemory, table.keys, keys_.data(), keys_.size() * sizeof keys_[0]);
  }

  bool has(std::uint64_t thread) const {
    auto key = std::find(keys_.begin(), keys_.end(), thread);
    if (key == keys_.end()) return table_.overflowed != 0;
    auto index = static_cast<std::uint64_t>(key - keys_.begin());
    Presence presence;
    memory_.read(wire::Step::kReadMemory, table_.states + index * table_.stride, &presence,
                 sizeof presence);
    return presence.is_inside != 0 || presence.calls_out != 0;
  }

 private:
  const Memory& memory_;
  const recorder::ThreadTable& table_;
  std::vector<std::uint64_t> keys_;
};

}  // namespace

const StoppedThread* find_inside(Freeze& freeze, const Memory& memory, const Injection& injection) {
  if (injection.begun != recorder::StartOutcome::kRecording) return nullptr;  // it never had a hook
  Marks marks(memory, injection.threads);
  abi::CodeRanges code{};
  code.add({injection.code.start, injection.code.start + injection.code.bytes});
  for (const StoppedThread& thread : freeze.threads())
    if (marks.has(arch::thread_pointer(thread.registers))) return &thread;
  return find_in_code(freeze, memory, code);
}

const StoppedThread* find_in_code(Freeze& freeze, const Memory& memory,
                                  const abi::CodeRanges& code) {
  if (code.count == 0) return nullptr;
  CodeSearch search(memory, code);
  for (const StoppedThread& thread : freeze.threads())
    if (search.finds(thread)) return &thread;
  return nullptr;
}

}  // namespace reachscan::helper
