// The last stack of a thread: which of its frames the next one shares.
#include <array>
#include <cstdint>

#include "check.hpp"
#include "recorder/stack_memo.hpp"

namespace reachscan::tests {
namespace {

using namespace recorder;

constexpr std::uint64_t kPc = 0x4000, kFp = 0x5000;

// Four frames of four words. In the first word is the frame pointer of the caller, if the function
// has saved it there, and in the last one the return address.
class Stack {
 public:
  static constexpr std::size_t kFrames = 4, kWords = 4;

  Stack() {
    for (std::size_t i = 0; i < kFrames; ++i) {
      words_[i * kWords] = kFp + i + 1;
      words_[i * kWords + kWords - 1] = kPc + i + 1;
    }
  }

  // Frame 0 is the innermost one.
  arch::Frame frame(std::size_t i) { return {kPc + i, address(i, 0), kFp + i}; }
  std::uint64_t address(std::size_t i, std::size_t word) {
    return reinterpret_cast<std::uint64_t>(&words_[i * kWords + word]);
  }
  std::uint64_t& word(std::size_t i, std::size_t word) { return words_[i * kWords + word]; }

  // `with_fp`: the function that finds its caller by the frame pointer. All functions but that of
  // `unsaved` save it.
  StackMemo memo(std::size_t with_fp, std::size_t unsaved = kFrames) {
    StackMemo memo;
    memo.begin(0);
    for (std::size_t i = kFrames; i-- > 0;)
      memo.push({frame(i), i == unsaved ? 0 : address(i, 0), static_cast<std::uint32_t>(10 + i),
                 i == with_fp});
    memo.end(true);
    return memo;
  }

 private:
  std::array<std::uint64_t, kFrames* kWords> words_ = {};
};

std::uint32_t shared(const StackMemo& memo, const arch::Frame& frame) {
  return StackMemo::Search(memo).outer(frame);
}

CASE(a_stack_is_shared_from_a_frame_that_is_the_same) {
  Stack stack;
  StackMemo memo = stack.memo(Stack::kFrames);
  for (std::size_t i = 0; i < Stack::kFrames; ++i) {
    CHECK_EQ(shared(memo, stack.frame(i)), Stack::kFrames - i);
    CHECK_EQ(memo.node(static_cast<std::uint32_t>(Stack::kFrames - i)), 10 + i);
  }
  arch::Frame elsewhere = stack.frame(1);
  elsewhere.pc += 1;
  CHECK_EQ(shared(memo, elsewhere), 0u);
}

CASE(no_stack_is_shared_that_returns_to_another_address_further_out) {
  Stack stack;
  StackMemo memo = stack.memo(Stack::kFrames);
  stack.word(1, Stack::kWords - 1) += 1;
  CHECK_EQ(shared(memo, stack.frame(0)), 0u);
  CHECK_EQ(shared(memo, stack.frame(1)), 0u);
  CHECK_EQ(shared(memo, stack.frame(2)), 2u);
}

CASE(a_frame_pointer_counts_only_where_it_leads_to_a_caller) {
  Stack stack;
  StackMemo memo = stack.memo(2);
  arch::Frame other = stack.frame(0);
  other.fp = 1;
  CHECK_EQ(shared(memo, other), 4u);
  stack.word(0, 0) = 1;
  CHECK_EQ(shared(memo, other), 4u);
  stack.word(2, 0) = 1;
  CHECK_EQ(shared(memo, other), 4u);
  stack.word(1, 0) = 1;
  CHECK_EQ(shared(memo, other), 0u);
  CHECK_EQ(shared(memo, stack.frame(2)), 2u);
}

CASE(a_frame_pointer_that_is_still_in_its_register_is_compared) {
  Stack stack;
  StackMemo memo = stack.memo(2, 1);
  arch::Frame other = stack.frame(1);
  other.fp = 1;
  CHECK_EQ(shared(memo, other), 0u);
  CHECK_EQ(shared(memo, stack.frame(1)), 3u);
  stack.word(0, 0) = 1;
  CHECK_EQ(shared(memo, stack.frame(0)), 0u);
}

}  // namespace
}  // namespace reachscan::tests
