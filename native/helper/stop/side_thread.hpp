// A second thread that takes over part of the work, to use an otherwise idle processor.
#pragma once

#include <pthread.h>

#include <functional>

namespace reachscan::helper {

// Runs `work`, which must not throw, on a thread of its own; the destructor waits for it. If the
// system refuses a thread, the work is not run here: the caller does the same work itself.
class SideThread {
 public:
  explicit SideThread(const std::function<void()>& work) : work_(work) {
    auto run = [](void* self) -> void* {
      static_cast<SideThread*>(self)->work_();
      return nullptr;
    };
    runs_ = pthread_create(&thread_, nullptr, run, this) == 0;
  }
  ~SideThread() {
    if (runs_) pthread_join(thread_, nullptr);
  }
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

 private:
  const std::function<void()>& work_;
  pthread_t thread_{};
  bool runs_;
};

}  // namespace reachscan::helper
