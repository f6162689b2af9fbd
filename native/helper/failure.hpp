// The one kind of error that the helper reports to its user: what failed, where, and why.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "wire/failures.hpp"
#include "wire/steps.hpp"

namespace reachscan::helper {

using Code = wire::FailureCode;

class Failure : public std::runtime_error {
 public:
  // `error` is an errno or 0.
  Failure(wire::Step step, Code code, std::string sentence, int error = 0, pid_t tid = 0,
          std::uint64_t address = 0)
      : std::runtime_error(std::move(sentence)),
        step(step),
        code(code),
        error(error),
        tid(tid),
        address(address) {}

  wire::Step step;
  Code code;
  int error;
  pid_t tid;
  std::uint64_t address;
};

}  // namespace reachscan::helper
