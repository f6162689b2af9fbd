// The one error that crosses from the helper to its user: what failed, where, and why.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "wire/steps.hpp"

namespace reachscan::helper {

class Failure : public std::runtime_error {
 public:
  // `code` is one of the names that reachscan/errors.py gives advice for; `error` an errno or 0.
  Failure(wire::Step step, const char* code, std::string sentence, int error = 0, pid_t tid = 0,
          std::uint64_t address = 0)
      : std::runtime_error(std::move(sentence)),
        step(step),
        code(code),
        error(error),
        tid(tid),
        address(address) {}

  wire::Step step;
  const char* code;
  int error;
  pid_t tid;
  std::uint64_t address;
};

inline bool is(const Failure& failure, const char* code) {
  return std::strcmp(failure.code, code) == 0;
}

}  // namespace reachscan::helper
