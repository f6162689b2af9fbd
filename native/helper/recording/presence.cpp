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
using recorder::Presence;

// Searches threads for ranges of code.
class CodeSearch {
 public:
  CodeSearch(const Memory& memory, const abi::CodeRanges& code)
      : memory_(memory), code_(code), hull_(code.ranges[0]) {
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
    std::size_t count = read_stack(thread.tid, sp) / kWord;
    for (std::size_t i = kBefore; i < count; ++i) {
      if (!hull_.contains(words_[i]) || !code_.contains(words_[i])) continue;
      std::size_t frame = i - kBefore;
      if (arch::context_of_frame(sp + frame * kWord, words_[frame], read) != 0) return true;
    }
    return false;
  }

 private:
  // Fills `words_` and returns the number of bytes. Unlike /proc/PID/mem, this call ends at the
  // guard page that follows most stacks.
  std::size_t read_stack(pid_t tid, std::uint64_t sp) {
    constexpr std::size_t kBytes = abi::kHandlerWords * sizeof words_[0];
    iovec all{words_.get(), kBytes};
    std::array<iovec, kBytes / arch::kPage + 1> pages;  // each is read as a whole, or not at all
    std::size_t count = 0;
    for (std::uint64_t at = sp, end = sp + kBytes; at < end; at += pages[count++].iov_len)
      pages[count] = {reinterpret_cast<void*>(at),
                      std::min(arch::kPage - at % arch::kPage, end - at)};
    ssize_t done = process_vm_readv(tid, &all, 1, pages.data(), count, 0);
    if (done >= 0) return static_cast<std::size_t>(done);
    return errno == EFAULT ? 0 : memory_.read_prefix(sp, words_.get(), kBytes);
  }

  const Memory& memory_;
  const abi::CodeRanges& code_;
  abi::CodeRange hull_;
  // Of a stack. Not zeroed: few of its pages are ever touched.
  std::unique_ptr<std::uint64_t[]> words_ =
      std::make_unique_for_overwrite<std::uint64_t[]>(abi::kHandlerWords);
};

// The code sets a mark whenever it calls the allocator, or it jumps: nothing returns to it
// unmarked.
bool is_marked(const StoppedThread& thread, const Memory& memory,
               const recorder::ThreadTable& table) {
  std::uint64_t pointer = arch::thread_pointer(thread.registers), key = 0;
  std::uint32_t row = recorder::ThreadTable::row_of(pointer, table.count);
  for (std::uint32_t probe = 0; probe < recorder::ThreadTable::kMaxProbes; ++probe) {
    memory.read(wire::Step::kReadMemory, table.keys + row * sizeof key, &key, sizeof key);
    if (key == 0) return false;
    if (key == pointer) {
      Presence presence;
      memory.read(wire::Step::kReadMemory, table.states + row * table.stride, &presence,
                  sizeof presence);
      return presence.is_inside != 0 || presence.calls_out != 0;
    }
    row = (row + 1) % table.count;
  }
  return table.overflowed != 0;
}

}  // namespace

const StoppedThread* find_inside(Freeze& freeze, const Memory& memory, const Injection& injection) {
  if (injection.begun != recorder::StartOutcome::kRecording) return nullptr;  // it never had a hook
  abi::CodeRanges code{};
  code.add({injection.code.start, injection.code.start + injection.code.bytes});
  for (const StoppedThread& thread : freeze.threads())
    if (is_marked(thread, memory, injection.threads)) return &thread;
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
