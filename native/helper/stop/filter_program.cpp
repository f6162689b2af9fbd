// Follows all paths through a program at once. A register that differs between two of them is
// unknown where they meet. Jumps lead forward only, so that one pass over the instructions
// suffices.
#include "helper/stop/filter_program.hpp"

#include <linux/seccomp.h>

#include <cstddef>

#include "arch/system_calls.hpp"

namespace reachscan::helper {
namespace {

using Word = std::optional<std::uint32_t>;

struct State {
  Word a = 0, x = 0;
  std::array<Word, BPF_MEMWORDS> scratch{};
};

void meet(Word& word, const Word& other) {
  if (word != other) word = std::nullopt;
}

void meet(State& state, const State& other) {
  meet(state.a, other.a);
  meet(state.x, other.x);
  for (std::size_t i = 0; i < state.scratch.size(); ++i) meet(state.scratch[i], other.scratch[i]);
}

// A word of struct seccomp_data, which has the byte order of the machine.
Word load(const PlannedCall& call, std::size_t offset) {
  if (offset == offsetof(seccomp_data, nr)) return call.number;
  if (offset == offsetof(seccomp_data, arch)) return arch::kAuditArchitecture;
  constexpr std::size_t kFirst = offsetof(seccomp_data, args);
  if (offset < kFirst || offset >= sizeof(seccomp_data)) return std::nullopt;
  const auto& argument = call.arguments[(offset - kFirst) / 8];
  if (!argument) return std::nullopt;
  return static_cast<std::uint32_t>(offset % 8 == 0 ? *argument : *argument >> 32);
}

Word calculate(unsigned operation, Word left, Word right) {
  if (!left || !right) return std::nullopt;
  switch (operation) {
    case BPF_ADD:
      return *left + *right;
    case BPF_SUB:
      return *left - *right;
    case BPF_MUL:
      return *left * *right;
    case BPF_AND:
      return *left & *right;
    case BPF_OR:
      return *left | *right;
    case BPF_XOR:
      return *left ^ *right;
    case BPF_LSH:
      return *right < 32 ? Word(*left << *right) : std::nullopt;
    case BPF_RSH:
      return *right < 32 ? Word(*left >> *right) : std::nullopt;
    default:
      return std::nullopt;
  }
}

Word compare(unsigned operation, Word left, Word right) {
  if (!left || !right) return std::nullopt;
  switch (operation) {
    case BPF_JEQ:
      return *left == *right;
    case BPF_JGT:
      return *left > *right;
    case BPF_JGE:
      return *left >= *right;
    case BPF_JSET:
      return (*left & *right) != 0;
    default:
      return std::nullopt;
  }
}

class Evaluation {
 public:
  Evaluation(const std::vector<sock_filter>& program, const PlannedCall& call)
      : program_(program), call_(call), states_(program.size()) {}

  bool allows() {
    if (!reach(0, State{})) return false;
    for (std::size_t at = 0; at < program_.size(); ++at)
      if (states_[at] && !step(at)) return false;
    return true;
  }

 private:
  bool reach(std::size_t at, const State& state) {
    if (at >= program_.size()) return false;
    if (states_[at])
      meet(*states_[at], state);
    else
      states_[at] = state;
    return true;
  }

  // Returns false if the filter may not allow the call, or is not understood.
  bool step(std::size_t at) {
    const sock_filter& now = program_[at];
    State next = *states_[at];
    const unsigned kind = BPF_CLASS(now.code), operation = BPF_OP(now.code);
    const Word operand = BPF_SRC(now.code) == BPF_X ? next.x : Word(now.k);
    switch (kind) {
      case BPF_RET:
        return is_allowed(BPF_RVAL(now.code) == BPF_A ? next.a : Word(now.k));
      case BPF_JMP:
        return jump(at, next, operation, operand);
      case BPF_ALU:
        // Dividing by zero ends the filter.
        if (operation == BPF_DIV) {
          if (operand.value_or(0) == 0) return false;
          next.a = next.a ? Word(*next.a / *operand) : std::nullopt;
        } else {
          next.a = operation == BPF_NEG ? calculate(BPF_SUB, 0, next.a)
                                        : calculate(operation, next.a, operand);
        }
        break;
      case BPF_MISC:
        if (BPF_MISCOP(now.code) == BPF_TAX)
          next.x = next.a;
        else
          next.a = next.x;
        break;
      default:
        if (!move(now, next)) return false;
    }
    return reach(at + 1, next);
  }

  bool jump(std::size_t at, const State& state, unsigned operation, Word operand) {
    const sock_filter& now = program_[at];
    if (operation == BPF_JA) return reach(at + 1 + now.k, state);
    const Word outcome = compare(operation, state.a, operand);
    return (outcome == Word(0) || reach(at + 1 + now.jt, state)) &&
           (outcome == Word(1) || reach(at + 1 + now.jf, state));
  }

  // Loads and stores.
  bool move(const sock_filter& now, State& state) const {
    const unsigned kind = BPF_CLASS(now.code);
    if (kind == BPF_ST || kind == BPF_STX) {
      if (now.k >= state.scratch.size()) return false;
      state.scratch[now.k] = kind == BPF_ST ? state.a : state.x;
      return true;
    }
    Word& loaded = kind == BPF_LD ? state.a : state.x;
    switch (BPF_MODE(now.code)) {
      case BPF_ABS:
        loaded = load(call_, now.k);
        return true;
      case BPF_LEN:
        loaded = sizeof(seccomp_data);
        return true;
      case BPF_IMM:
        loaded = now.k;
        return true;
      case BPF_MEM:
        if (now.k >= state.scratch.size()) return false;
        loaded = state.scratch[now.k];
        return true;
      default:
        return false;
    }
  }

  static bool is_allowed(Word answer) {
    return answer && (*answer & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ALLOW;
  }

  const std::vector<sock_filter>& program_;
  const PlannedCall& call_;
  std::vector<std::optional<State>> states_;  // before each instruction; empty: not reached
};

}  // namespace

bool allows(const std::vector<sock_filter>& program, const PlannedCall& call) {
  return Evaluation(program, call).allows();
}

}  // namespace reachscan::helper
