// Hooks the functions of a static program: their first bytes are replaced by a jump to the
// recorder, which must be within its reach.
#pragma once

#include <cstdint>
#include <vector>

#include "helper/recording/injected_image.hpp"
#include "helper/recording/static_program.hpp"
#include "helper/stop/freeze.hpp"

namespace reachscan::helper {

class MovedStarts {
 public:
  // Called before the pause. Fills in hooks and slots. Throws Failure(kUnrecordable) if some
  // function cannot be hooked.
  MovedStarts(pid_t pid, const StaticProgram& program, const InjectedImage& image,
              recorder::Injection& injection);

  // The address at which the recorder's region must start.
  std::uint64_t place() const { return place_; }

  // Throws Failure(kRetry) if a thread is in code that will be overwritten.
  void require_nobody_at_starts(Freeze& freeze, const Memory& memory) const;

  // Adds them to the bytes to be written at InjectedImage::code().
  void put_moved_starts(std::vector<unsigned char>& bytes) const;

 private:
  void move(const StaticFunction& function, recorder::Injection& injection);
  [[noreturn]] void refuse(const char* function, const char* why) const;

  pid_t pid_;
  std::uint64_t place_;
  std::vector<std::uint64_t> starts_;
  std::vector<unsigned char> moved_;
};

}  // namespace reachscan::helper
