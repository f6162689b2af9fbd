// Hooks functions at their entry, however they are called: their first bytes are replaced by a jump
// to the recorder, which must be within its reach.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "helper/recording/injected_image.hpp"
#include "helper/recording/presence.hpp"
#include "helper/recording/target_function.hpp"
#include "helper/stop/freeze.hpp"

namespace reachscan::helper {

class MovedStarts {
 public:
  // Called before the pause. Fills in hooks and slots of the functions that can be hooked this way.
  MovedStarts(pid_t pid, const std::vector<TargetFunction>& functions, const InjectedImage& image,
              const Memory& memory, recorder::Injection& injection);

  // The address at which the recorder's region must start, 0 for anywhere, since nothing jumps
  // there.
  std::uint64_t place() const { return starts_.empty() ? 0 : place_; }

  // The first function that cannot be hooked this way, and why. Empty if all can.
  const std::string& obstacle() const { return obstacle_; }

  // Throws Failure(kRetry) if a thread is in code that will be overwritten, or this has changed.
  void require_untouched(Freeze& freeze, const Memory& memory);

  // Adds the moved starts to the bytes for InjectedImage::code().
  void write_moved_starts(std::vector<unsigned char>& bytes) const;

 private:
  struct Start {
    std::uint64_t address;
    std::uint64_t word;
    std::uint64_t moved_to;
  };

  bool is_unchanged(const Memory& memory) const;
  void move(const TargetFunction& function, recorder::Injection& injection);
  const char* try_move(const TargetFunction& function, recorder::Injection& injection);

  std::uint64_t place_ = 0;
  std::vector<Start> starts_;
  std::vector<unsigned char> moved_;
  ThreadSearch search_;
  std::string obstacle_;
};

}  // namespace reachscan::helper
