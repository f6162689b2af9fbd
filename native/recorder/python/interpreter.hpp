// CPython in the recorded process, and the Python frames of the calling thread.
//
// They are read in place by a thread that holds the interpreter's lock, so nothing changes
// meanwhile. A thread without the lock (an extension has released it) has no Python frames.
#pragma once

#include "recorder/images.hpp"
#include "recorder/python/functions.hpp"
#include "recorder/stack_memo.hpp"

namespace reachscan::recorder {

// `host` is an address on the C stack, in the frame of the function that evaluates the Python
// frame.
struct PythonFrame {
  std::uint64_t pc;  // as in Node
  std::uint64_t host;
};

class Interpreter {
 public:
  Interpreter() = default;
  // It must be the program, or a library that the program was linked with: others may be unloaded.
  Interpreter(const LinkMap& link_map, const Tables& tables);

  // Returns the thread state with which the thread runs Python; 0 if it does not, or if the version
  // is not understood. `caller` is the allocating code. If that is the loader, nothing is queried:
  // it may be about to allocate thread-local storage, in which the interpreter keeps the answer.
  std::uint64_t running_thread(std::uint64_t caller) const {
    if (layout_ == nullptr || loader_.contains(caller)) return 0;
    std::uint64_t thread = functions_.current_thread();
    // Before 3.12, that is the thread that holds the lock, which may be another one.
    return thread != 0 && thread == functions_.own_thread() ? thread : 0;
  }

  // Writes the frames of the running thread, innermost first, at most `most`: only those of whole
  // evaluation loops.
  std::uint32_t frames(std::uint64_t thread, PythonFrame* out, std::uint32_t most);

  // 3.9 keeps nothing on the C stack that would reveal hosts: the evaluating functions are found by
  // their code, and there must be as many of them as frames. Returns how many frames have a host:
  // all or none.
  bool has_no_hosts() const { return layout_->version == kPython39; }
  std::uint32_t find_hosts(PythonFrame* python, std::uint32_t python_count, const MemoFrame* frames,
                           std::uint32_t count) const;

 private:
  struct Functions {
    std::uint64_t (*current_thread)();
    std::uint64_t (*own_thread)();
    int (*line)(std::uint64_t code, int instruction);
  };

  bool find_functions(const Symbols& symbols);
  std::uint64_t pc_of(std::uint64_t frame);
  int instruction(std::uint64_t frame, std::uint64_t code) const;

  const PythonLayout* layout_ = nullptr;
  Functions functions_{};
  std::uint64_t code_type_ = 0;
  Extent loop_;  // the function that evaluates
  Extent loader_;
  PythonFunctions rows_;
};

}  // namespace reachscan::recorder
