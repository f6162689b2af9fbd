// Checks registers, signal frames, and the recorder's own records of its threads.
#include "helper/recording/presence.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>

#include "arch/address_space.hpp"
#include "arch/signal_frame.hpp"
#include "wire/inside_allocator.hpp"

namespace reachscan::helper {
namespace {

using recorder::Injection;

constexpr std::size_t kWord = sizeof(std::uint64_t);

// Searches threads for ranges of code.
class CodeSearch {
 public:
  // `buffer` has room for kHandlerWords.
  CodeSearch(const Memory& memory, const abi::CodeRanges& code, std::vector<std::uint64_t>& buffer)
      : memory_(memory), code_(code), hull_(code.ranges[0]), buffer_(buffer) {
    for (std::uint64_t i = 1; i < code.count; ++i) {
      hull_.start = std::min(hull_.start, code.ranges[i].start);
      hull_.end = std::max(hull_.end, code.ranges[i].end);
    }
  }

  // Returns a thread that is in the code, or was interrupted there by a handler that has not
  // returned.
  const StoppedThread* find(const std::vector<StoppedThread>& threads) {
    for (std::size_t next = 0; next < threads.size();) {
      stacks_.clear();
      for (std::size_t used = 0; next < threads.size(); used += stacks_.back().words, ++next) {
        std::size_t words = words_above(threads[next]);
        if (used + words > buffer_.size()) break;
        stacks_.push_back({&threads[next], &buffer_[used], words});
      }
      read_stacks();
      for (const Stack& stack : stacks_)
        if (is_in_code(stack)) return stack.thread;
    }
    return nullptr;
  }

 private:
  struct Stack {
    const StoppedThread* thread;
    std::uint64_t* content;
    std::size_t words;
  };

  // A thread's own data is at the end of its stack, if not elsewhere.
  std::size_t words_above(const StoppedThread& thread) const {
    std::uint64_t bytes =
        arch::thread_pointer(thread.registers) - arch::stack_pointer(thread.registers);
    return std::min<std::uint64_t>(bytes / kWord, buffer_.size());
  }

  // Those that end there are read together.
  void read_stacks() {
    std::vector<Memory::Piece> pieces;
    for (const Stack& stack : stacks_)
      pieces.push_back(
          {arch::stack_pointer(stack.thread->registers), stack.content, stack.words * kWord});
    bool are_bounded = stacks_.size() > 1 || stacks_[0].words < buffer_.size();
    if (are_bounded && memory_.try_read_all(pieces)) return;
    for (Stack& stack : stacks_) stack.words = read_stack(stack) / kWord;
  }

  // Returns the number of bytes. Unlike /proc/PID/mem, this call ends at the guard page that
  // follows most stacks.
  std::size_t read_stack(const Stack& stack) const {
    constexpr std::size_t kMost = abi::kHandlerWords * kWord;
    std::uint64_t sp = arch::stack_pointer(stack.thread->registers), end = sp + stack.words * kWord;
    iovec all{stack.content, stack.words * kWord};
    std::array<iovec, kMost / arch::kSmallestPage + 1>
        pages;  // each is read as a whole, or not at all
    std::size_t count = 0;
    for (std::uint64_t at = sp; at < end; at += pages[count++].iov_len)
      pages[count] = {reinterpret_cast<void*>(at),
                      std::min(arch::kPage - at % arch::kPage, end - at)};
    ssize_t done = process_vm_readv(stack.thread->tid, &all, 1, pages.data(), count, 0);
    if (done >= 0) return static_cast<std::size_t>(done);
    return errno == EFAULT ? 0 : memory_.read_prefix(sp, stack.content, all.iov_len);
  }

  // The kernel saves the registers that a handler interrupted on the stack.
  bool is_in_code(const Stack& stack) const {
    const arch::Registers& registers = stack.thread->registers;
    if (code_.contains(arch::program_counter(registers))) return true;
    auto read = [this](std::uint64_t at, void* to, std::size_t length) {
      return memory_.try_read(at, to, length);
    };
    constexpr std::uint64_t kContext = arch::Context<8>::kProgramCounter;
    for (std::size_t i = 0; i < stack.words; ++i) {
      if (!hull_.contains(stack.content[i]) || !code_.contains(stack.content[i])) continue;
      std::uint64_t context = arch::stack_pointer(registers) + i * kWord - kContext, word = 0;
      std::uint64_t at = context + static_cast<std::uint64_t>(arch::kFrameWordFromContext);
      bool is_live = at >= arch::stack_pointer(registers) && read(at, &word, sizeof word);
      if (is_live && arch::context_of_frame<kWord>(at, word, read) == context) return true;
    }
    return false;
  }

  const Memory& memory_;
  const abi::CodeRanges& code_;
  abi::CodeRange hull_;
  std::vector<std::uint64_t>& buffer_;
  std::vector<Stack> stacks_;
};

// The code sets a mark whenever it calls the allocator, or it jumps: nothing returns to it
// unmarked.
class Marks {
 public:
  Marks(const Memory& memory, const recorder::ThreadTable& table)
      : memory_(memory), table_(table) {}

  // Returns a thread that is marked, or may be.
  const StoppedThread* find(const std::vector<StoppedThread>& threads) const {
    std::vector<std::uint64_t> places, keys, states;
    for (const StoppedThread& thread : threads) places.push_back(key_at(first_row(thread)));
    read(places, keys);
    std::vector<const StoppedThread*> owners;
    places.clear();
    for (std::size_t i = 0; i < threads.size(); ++i) {
      std::uint32_t row = find_row(threads[i], keys[i]);
      if (row == kNone) continue;
      if (row == kUnknown) return &threads[i];
      owners.push_back(&threads[i]);
      places.push_back(table_.states + row * table_.stride);
    }
    read(places, states);
    for (std::size_t i = 0; i < states.size(); ++i)
      if (states[i] != 0) return owners[i];
    return nullptr;
  }

 private:
  // A word for each thread.
  static_assert(sizeof(recorder::Presence) == sizeof(std::uint64_t));

  static constexpr std::uint32_t kNone = ~0u, kUnknown = ~1u;

  void read(const std::vector<std::uint64_t>& places, std::vector<std::uint64_t>& words) const {
    if (!memory_.try_read_words(places, words))
      throw Failure(wire::Step::kReadMemory, Code::kInternal,
                    "cannot read what the recorder says of its threads", errno);
  }

  std::uint64_t key_at(std::uint32_t row) const { return table_.keys + row * sizeof table_.keys; }

  std::uint32_t first_row(const StoppedThread& thread) const {
    return recorder::ThreadTable::row_of(arch::thread_pointer(thread.registers), table_.count);
  }

  // `key`: that of its first row. Others are rarely needed.
  std::uint32_t find_row(const StoppedThread& thread, std::uint64_t key) const {
    std::uint64_t pointer = arch::thread_pointer(thread.registers);
    std::uint32_t row = first_row(thread);
    for (std::uint32_t probe = 1;; ++probe) {
      if (key == 0) return kNone;
      if (key == pointer) return row;
      if (probe == recorder::ThreadTable::kMaxProbes) break;
      row = (row + 1) % table_.count;
      memory_.read(wire::Step::kReadMemory, key_at(row), &key, sizeof key);
    }
    return table_.overflowed != 0 ? kUnknown : kNone;
  }

  const Memory& memory_;
  const recorder::ThreadTable& table_;
};

}  // namespace

ThreadSearch::ThreadSearch() : stacks_(abi::kHandlerWords) {}

const StoppedThread* ThreadSearch::find_inside(Freeze& freeze, const Memory& memory,
                                               const Injection& injection) {
  if (injection.begun != recorder::StartOutcome::kRecording) return nullptr;  // it never had a hook
  abi::CodeRanges code{};
  code.add({injection.code.start, injection.code.start + injection.code.bytes});
  const StoppedThread* marked = Marks(memory, injection.threads).find(freeze.threads());
  return marked != nullptr ? marked : find_in_code(freeze, memory, code);
}

const StoppedThread* ThreadSearch::find_in_code(Freeze& freeze, const Memory& memory,
                                                const abi::CodeRanges& code) {
  if (code.count == 0) return nullptr;
  return CodeSearch(memory, code, stacks_).find(freeze.threads());
}

}  // namespace reachscan::helper
