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

// Reads as many words as possible.
std::size_t read_words(const Memory& memory, std::uint64_t sp, std::vector<std::uint64_t>& words) {
  std::size_t count = 0;
  while (count < words.size()) {
    std::uint64_t at = sp + count * sizeof words[0];
    std::size_t more =
        std::min((arch::kPage - at % arch::kPage) / sizeof words[0], words.size() - count);
    if (more == 0 || !memory.try_read(at, &words[count], more * sizeof words[0])) break;
    count += more;
  }
  return count;
}

// Returns whether a handler that has not returned interrupted the code: the kernel saves the
// interrupted registers on the stack.
bool is_interrupted_inside(const abi::CodeRange& code, const Memory& memory, std::uint64_t sp) {
  std::vector<std::uint64_t> words(abi::kHandlerWords);
  std::size_t count = read_words(memory, sp, words);
  auto read = [&](std::uint64_t at, void* buffer, std::size_t length) {
    return memory.try_read(at, buffer, length);
  };
  constexpr std::size_t kBefore = 1 + arch::Context<8>::kProgramCounter / sizeof(std::uint64_t);
  for (std::size_t i = kBefore; i < count; ++i) {
    std::size_t frame = i - kBefore;
    if (code.contains(words[i]) &&
        arch::context_of_frame(sp + frame * sizeof words[0], words[frame], read) != 0)
      return true;
  }
  return false;
}

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
  abi::CodeRange code{injection.code.start, injection.code.start + injection.code.bytes};
  for (const StoppedThread& thread : freeze.threads())
    if (marks.has(arch::thread_pointer(thread.registers))) return &thread;
  return find_in_code(freeze, memory, code);
}

const StoppedThread* find_in_code(Freeze& freeze, const Memory& memory,
                                  const abi::CodeRange& code) {
  for (const StoppedThread& thread : freeze.threads())
    if (code.contains(arch::program_counter(thread.registers)) ||
        is_interrupted_inside(code, memory, arch::stack_pointer(thread.registers)))
      return &thread;
  return nullptr;
}

}  // namespace reachscan::helper
