// What the kernel has put at the top of the main stack: arguments, environment, auxiliary vector.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>

// The loader and the C library know it; either may be missing. No file in /proc is needed.
extern "C" {
extern void* __libc_stack_end __attribute__((weak));
extern char** environ __attribute__((weak));
}

namespace reachscan::recorder {

class ProcessStart {
 public:
  // `passed` is the environment that glibc passes to constructors, or null: earlier, the C library
  // may not have its own yet, and later the loader may have reused the space of the arguments that
  // were its own. No program has changed it that early.
  explicit ProcessStart(char** passed) {
    if (&environ != nullptr && environ != nullptr) {
      environment_ = environ;
    } else if (passed != nullptr) {
      environment_ = passed;
    } else if (&__libc_stack_end != nullptr && __libc_stack_end != nullptr) {
      auto* words = static_cast<std::uint64_t*>(__libc_stack_end);
      environment_ = reinterpret_cast<char**>(words + 1 + *words + 1);
    }
    if (environment_ == nullptr) return;
    char** end = environment_;
    while (*end != nullptr) ++end;
    auxiliary_ = reinterpret_cast<const Elf64_auxv_t*>(end + 1);
  }

  bool is_known() const { return auxiliary_ != nullptr; }

  // Returns the value of a variable, or null.
  const char* variable(const char* name) const {
    for (char** entry = environment_; entry != nullptr && *entry != nullptr; ++entry) {
      std::size_t i = 0;
      while (name[i] != 0 && (*entry)[i] == name[i]) ++i;
      if (name[i] == 0 && (*entry)[i] == '=') return *entry + i + 1;
    }
    return nullptr;
  }

  // Returns an entry of the auxiliary vector (AT_...); 0 if there is none.
  std::uint64_t auxiliary(std::uint64_t type) const {
    for (const Elf64_auxv_t* entry = auxiliary_; entry != nullptr && entry->a_type != AT_NULL;
         ++entry)
      if (entry->a_type == type) return entry->a_un.a_val;
    return 0;
  }

  // An address above all frames of the main stack.
  std::uint64_t stack_top() const { return reinterpret_cast<std::uint64_t>(auxiliary_); }

 private:
  char** environment_ = nullptr;
  const Elf64_auxv_t* auxiliary_ = nullptr;
};

}  // namespace reachscan::recorder
