// Runs each case in a process of its own, ends it after its limit, and counts failures.
#include "check.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <exception>

#include "case_seconds.hpp"

namespace reachscan::tests {
namespace {

Case* first_case = nullptr;
Case** last_case = &first_case;

[[noreturn]] void run_alone(const Case& one) {
  alarm(case_seconds());
  try {
    one.run();
  } catch (const std::exception& error) {
    fail(one.name, 0, std::string("uncaught exception: ") + error.what());
  }
  std::_Exit(0);
}

bool passes(const Case& one) {
  pid_t child = fork();
  if (child == 0) run_alone(one);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    std::fprintf(stderr, "FAIL %s: took longer than %u s (%s sets the limit)\n", one.name,
                 case_seconds(), kCaseSeconds);
    return false;
  }
  std::fprintf(stderr, "FAIL %s: %s\n", one.name,
               WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed");
  return false;
}

}  // namespace

Case::Case(const char* case_name, void (*function)())
    : name(case_name), run(function), next(nullptr) {
  *last_case = this;
  last_case = &next;
}

}  // namespace reachscan::tests

// Arguments: the cases to run, all by default.
int main(int argc, char** argv) {
  using reachscan::tests::Case;
  int total = 0, failed = 0;
  for (const Case* one = reachscan::tests::first_case; one != nullptr; one = one->next) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], one->name) == 0;
    if (!wanted) continue;
    ++total;
    if (!reachscan::tests::passes(*one)) ++failed;
  }
  std::printf("%d cases, %d failed\n", total, failed);
  return failed == 0 && total > 0 ? 0 : 1;
}
