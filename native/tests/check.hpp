// The whole test framework. Each case runs in a process of its own: memory is mapped at fixed
// addresses, and a case that crashes or hangs must not affect the others.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace reachscan::tests {

struct Case {
  Case(const char* name, void (*run)());
  const char* name;
  void (*run)();
  Case* next;
};

// Shown with a failure besides its place: the seed, the release under test.
inline std::string context;

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s%s%s\n", file, line, what.c_str(),
               context.empty() ? "" : "\n  with ", context.c_str());
  std::_Exit(1);
}

template <typename Left, typename Right>
void check_equal(const char* file, int line, const char* text, const Left& left,
                 const Right& right) {
  if (left == right) return;
  std::ostringstream what;
  what << text << ": " << std::hex << std::showbase << left << " is not " << right;
  fail(file, line, what.str());
}

}  // namespace reachscan::tests

#define CASE(name)                                              \
  static void name();                                           \
  static const reachscan::tests::Case case_##name(#name, name); \
  static void name()
#define CHECK(condition) \
  ((condition) ? void() : reachscan::tests::fail(__FILE__, __LINE__, "not true: " #condition))
#define CHECK_EQ(left, right) \
  reachscan::tests::check_equal(__FILE__, __LINE__, #left " == " #right, left, right)
