// What seccomp filters answer, compared with what the kernel does under the same filter.
#include "helper/stop/filter_program.hpp"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <random>

#include "check.hpp"

using namespace reachscan::helper;

namespace {

using Program = std::vector<sock_filter>;
using Numbers = std::array<std::uint64_t, 6>;

constexpr std::uint32_t kUnusedCall = 4000;  // fails with ENOSYS where filters allow it
constexpr std::uint32_t kAllow = SECCOMP_RET_ALLOW, kRefuse = SECCOMP_RET_ERRNO | EDOM;
constexpr std::uint32_t kNumber = offsetof(seccomp_data, nr), kArch = offsetof(seccomp_data, arch);

sock_filter statement(int code, std::uint32_t k) {
  return BPF_STMT(static_cast<std::uint16_t>(code), k);
}

sock_filter jump(int code, std::uint32_t k, std::size_t yes, std::size_t no) {
  return BPF_JUMP(static_cast<std::uint16_t>(code), k, static_cast<std::uint8_t>(yes),
                  static_cast<std::uint8_t>(no));
}

sock_filter load(std::size_t offset) {
  return statement(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}

std::size_t argument(std::size_t i) { return offsetof(seccomp_data, args) + 8 * i; }

sock_filter answer(std::uint32_t value) { return statement(BPF_RET | BPF_K, value); }

PlannedCall known(const Numbers& arguments) {
  PlannedCall call{kUnusedCall};
  for (std::size_t i = 0; i < arguments.size(); ++i) call.arguments[i] = arguments[i];
  return call;
}

// Makes one call after the other under the filter, in a process of its own. Returns for each
// whether it was allowed; -1 for all if the kernel does not take the filter.
std::vector<int> by_kernel(Program program, const std::vector<Numbers>& calls) {
  int ends[2];
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  if (child == 0) {
    sock_fprog loaded{static_cast<std::uint16_t>(program.size()), program.data()};
    bool fine = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &loaded) == 0;
    for (const Numbers& n : calls) {
      long result = fine ? syscall(kUnusedCall, n[0], n[1], n[2], n[3], n[4], n[5]) : -1;
      char told = fine ? static_cast<char>(result == -1 && errno == ENOSYS) : -1;
      if (write(ends[1], &told, 1) != 1) break;
    }
    _exit(0);
  }
  close(ends[1]);
  std::vector<int> outcomes;
  for (signed char told; read(ends[0], &told, 1) == 1;) outcomes.push_back(told);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return outcomes;
}

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  std::uint32_t below(std::uint32_t end) { return random_() % end; }

  std::uint32_t constant() {
    constexpr std::uint32_t kChoices[] = {0, 1, 2, 7, 31, kUnusedCall, 0x7fffffff, ~0u};
    return below(3) == 0 ? below(8) : kChoices[below(std::size(kChoices))];
  }

  Numbers arguments() {
    Numbers numbers{};
    for (std::uint64_t& number : numbers) number = constant() | std::uint64_t{constant()} << 32;
    return numbers;
  }

  // Any filter allows the calls that the process needs besides: those below kUnusedCall.
  Program program() {
    Program program = {load(kNumber), jump(BPF_JMP | BPF_JGE | BPF_K, kUnusedCall, 1, 0),
                       answer(kAllow)};
    for (std::uint32_t i = 0; i < BPF_MEMWORDS; ++i) program.push_back(statement(BPF_ST, i));
    const std::size_t end = program.size() + 3 + below(25);
    while (program.size() < end) program.push_back(instruction(end - program.size()));
    // The answer depends on what has become of A, X, or a word of memory.
    const std::uint32_t source = below(4);
    if (source == 0) program.push_back(statement(BPF_MISC | BPF_TXA, 0));
    if (source == 1) program.push_back(statement(BPF_LD | BPF_MEM, below(BPF_MEMWORDS)));
    program.push_back(jump(BPF_JMP | BPF_JSET | BPF_K, 1u << below(4), 0, 1));
    program.push_back(answer(kRefuse));
    program.push_back(answer(kAllow));
    return program;
  }

 private:
  // `left`: instructions from here on that a jump may skip.
  sock_filter instruction(std::size_t left) {
    constexpr int kOperations[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_AND,
                                   BPF_OR,  BPF_XOR, BPF_LSH, BPF_RSH};
    constexpr int kJumps[] = {BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET};
    const int source = below(2) == 0 ? BPF_X : BPF_K;
    const auto skipped = [&] { return below(static_cast<std::uint32_t>(left)); };
    switch (below(9)) {
      case 0:
      case 1:
        return load(below(8) == 0 ? kArch : argument(0) + 4 * below(12));
      case 2: {
        const int operation = kOperations[below(std::size(kOperations))];
        const bool shifts = operation == BPF_LSH || operation == BPF_RSH;
        // Shifts by 32 and more differ from processor to processor.
        if (shifts || operation == BPF_DIV)
          return statement(BPF_ALU | operation | BPF_K, shifts ? below(32) : 1 + below(9));
        return statement(BPF_ALU | operation | source, constant());
      }
      case 3:
        return statement(below(2) == 0 ? BPF_MISC | BPF_TAX : BPF_MISC | BPF_TXA, 0);
      case 4:
        return statement(below(2) == 0 ? BPF_ST : BPF_STX, below(BPF_MEMWORDS));
      case 5:
        return statement((below(2) == 0 ? BPF_LD : BPF_LDX) | BPF_MEM, below(BPF_MEMWORDS));
      case 6:
        return statement((below(2) == 0 ? BPF_LD | BPF_IMM : BPF_LDX | BPF_W | BPF_LEN), 5);
      case 7:
        return below(4) == 0 ? statement(BPF_JMP | BPF_JA, skipped())
                             : statement(BPF_ALU | BPF_NEG, 0);
      default:
        return jump(BPF_JMP | kJumps[below(std::size(kJumps))] | source, constant(), skipped(),
                    skipped());
    }
  }

  std::mt19937 random_;
};

constexpr unsigned kPrograms = 400, kCalls = 12;

}  // namespace

CASE(known_calls_are_judged_as_the_kernel_does) {
  unsigned compared = 0, allowed = 0;
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
    reachscan::tests::context = "seed " + std::to_string(seed);
    Generator generator(seed);
    const Program program = generator.program();
    std::vector<Numbers> calls;
    for (unsigned i = 0; i < kCalls; ++i) calls.push_back(generator.arguments());
    const std::vector<int> outcomes = by_kernel(program, calls);
    CHECK_EQ(outcomes.size(), calls.size());
    for (unsigned i = 0; i < kCalls && outcomes[i] >= 0; ++i, ++compared) {
      CHECK_EQ(allows(program, known(calls[i])), outcomes[i] != 0);
      allowed += outcomes[i] != 0;
    }
  }
  CHECK(compared > kPrograms * kCalls / 2 && allowed > compared / 9 && allowed < compared);
}

CASE(what_is_allowed_whatever_an_argument_is_is_always_allowed) {
  unsigned certain = 0;
  for (unsigned seed = 0; seed < kPrograms; ++seed) {
    reachscan::tests::context = "seed " + std::to_string(seed);
    Generator generator(seed);
    const Program program = generator.program();
    PlannedCall planned = known(generator.arguments());
    const std::uint32_t unknown = 1 + generator.below(63);
    for (std::size_t i = 0; i < 6; ++i)
      if (unknown >> i & 1) planned.arguments[i] = {};
    if (!allows(program, planned)) continue;
    ++certain;
    for (unsigned trial = 0; trial < 50; ++trial) {
      Numbers numbers = generator.arguments();
      for (std::size_t i = 0; i < 6; ++i)
        if (planned.arguments[i]) numbers[i] = *planned.arguments[i];
      CHECK(allows(program, known(numbers)));
    }
  }
  CHECK(certain > kPrograms / 20);
}

CASE(paths_that_meet_know_what_they_have_in_common) {
  // A or X is loaded on both paths, according to whether the first argument is above 9.
  auto meeting = [](int load_code, std::uint32_t above, std::uint32_t otherwise) {
    const bool in_x = load_code == BPF_LDX;
    return Program{load(argument(0)),
                   jump(BPF_JMP | BPF_JGT | BPF_K, 9, 0, 2),
                   statement(load_code | BPF_IMM, above),
                   statement(BPF_JMP | BPF_JA, 1),
                   statement(load_code | BPF_IMM, otherwise),
                   in_x ? statement(BPF_MISC | BPF_TXA, 0) : statement(BPF_JMP | BPF_JA, 0),
                   jump(BPF_JMP | BPF_JEQ | BPF_K, 5, 0, 1),
                   answer(kAllow),
                   answer(kRefuse)};
  };
  for (int load_code : {BPF_LD, BPF_LDX}) {
    CHECK(allows(meeting(load_code, 5, 5), {kUnusedCall}));
    CHECK(!allows(meeting(load_code, 5, 4), {kUnusedCall}));
    CHECK(allows(meeting(load_code, 5, 4), known({10})));
    CHECK(!allows(meeting(load_code, 5, 4), known({9})));
  }
}

CASE(only_plain_allowing_counts) {
  for (std::uint32_t verdict : {SECCOMP_RET_LOG, SECCOMP_RET_TRACE, SECCOMP_RET_USER_NOTIF,
                                SECCOMP_RET_ERRNO, SECCOMP_RET_TRAP, SECCOMP_RET_KILL_THREAD})
    CHECK(!allows({answer(verdict)}, {kUnusedCall}));
  CHECK(allows({answer(kAllow)}, {kUnusedCall}));
  CHECK(!allows({load(argument(1)), statement(BPF_RET | BPF_A, 0)}, {kUnusedCall}));
}

CASE(another_architecture_is_another_call) {
  const Program program = {load(kArch), jump(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_PPC64, 0, 1),
                           answer(kAllow), answer(kRefuse)};
  CHECK(!allows(program, {kUnusedCall}));
}

CASE(what_is_not_understood_is_not_allowed) {
  CHECK(!allows({}, {kUnusedCall}));
  CHECK(!allows({load(kNumber)}, {kUnusedCall}));  // no end
  CHECK(!allows({statement(BPF_JMP | BPF_JA, 7), answer(kAllow)}, {kUnusedCall}));
  CHECK(!allows({statement(BPF_LD | BPF_B | BPF_IND, 0), answer(kAllow)}, {kUnusedCall}));
  CHECK(!allows({statement(BPF_ALU | BPF_DIV | BPF_X, 0), answer(kAllow)}, {kUnusedCall}));
}
