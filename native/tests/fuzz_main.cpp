// Runs the fuzz target without libFuzzer: inputs 1, 2, 3, ... generated from their numbers.
//
// FUZZ_RUNS and FUZZ_SECONDS limit how many; an argument selects a single input.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "case_seconds.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);

namespace {

using Clock = std::chrono::steady_clock;

unsigned long number_from(const char* name, unsigned long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
}

void run(unsigned long number) {
  std::mt19937_64 random(number);
  // Few edits: a heap damaged in many places is refused at the first one.
  std::vector<unsigned char> input(2 + random() % 64);
  for (unsigned char& byte : input) byte = static_cast<unsigned char>(random());
  alarm(reachscan::tests::case_seconds());
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

void run_all(unsigned long* current) {
  unsigned long runs = number_from("FUZZ_RUNS", 1000000);
  Clock::time_point end = Clock::now() + std::chrono::seconds(number_from("FUZZ_SECONDS", 15));
  for (*current = 1; *current <= runs && Clock::now() < end; ++*current) run(*current);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    run(std::strtoul(argv[1], nullptr, 10));
    return 0;
  }
  // Shared, so that the number of the input survives the process that the input kills.
  auto* current = static_cast<unsigned long*>(mmap(
      nullptr, sizeof(unsigned long), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pid_t child = fork();
  if (child == 0) {
    run_all(current);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status == 0) {
    std::printf("%lu inputs\n", *current - 1);
    return 0;
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    std::fprintf(stderr, "input %lu took longer than %u s (%s sets the limit)\n", *current,
                 reachscan::tests::case_seconds(), reachscan::tests::kCaseSeconds);
  }
  std::fprintf(stderr, "input %lu failed; to see it again: %s %lu\n", *current, argv[0], *current);
  return 1;
}
