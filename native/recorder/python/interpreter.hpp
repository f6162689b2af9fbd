// CPython in the recorded process, and the Python frames of the calling thread.
//
// They are read where they lie, by a thread that holds the interpreter's lock: nothing of it
// changes meanwhile. Who runs without the lock (an extension that has released it) has none.
#pragma once

#include "recorder/images.hpp"
#include "recorder/python/functions.hpp"
#include "recorder/stack_memo.hpp"

namespace reachscan::recorder {

// `host` is an address on the C stack, in the frame of the function that evaluates it.
struct PythonFrame {
  std::uint64_t pc;  // as Node has it
  std::uint64_t host;
};

class Interpreter {
 public:
  Interpreter() = default;
  // It must be the program, or a library that this was linked with: others may be unloaded.
  Interpreter(const LinkMap& link_map, const Tables& tables);

  // What the thread runs Python with; 0 if it does not, or is not understood. `caller` is the code
  // that allocates. If that is the loader, nothing is asked: it may be about to make room for
  // thread-local storage, in which the interpreter keeps the answer.
  std::uint64_t running_thread(std::uint64_t caller) const {
    if (layout_ == nullptr || loader_.contains(caller)) return 0;
    std::uint64_t thread = functions_.current_thread();
    // Before 3.12 that is the thread that holds the lock, whichever it is.
    return thread != 0 && thread == functions_.own_thread() ? thread : 0;
  }

  // Writes the frames of the running thread, innermost first, `most` at most: those of whole
  // evaluation loops.
  std::uint32_t frames(std::uint64_t thread, PythonFrame* out, std::uint32_t most);

  // 3.9 keeps nothing on the C stack that would tell of hosts: the functions that evaluate are
  // found by their code, and must be as many as the frames. Returns how many have a host: all or
  // none.
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
