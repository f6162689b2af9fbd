// A lock for very short critical sections: a waiting thread spins.
#pragma once

#include "sweeper/blob/host.hpp"

namespace reachscan::sweeper {

class SpinLock {
 public:
  class Guard {
   public:
    explicit Guard(SpinLock& lock) : lock_(lock) {
      while (__atomic_exchange_n(&lock_.locked_, 1, __ATOMIC_ACQUIRE) != 0) relax();
    }
    ~Guard() { __atomic_store_n(&lock_.locked_, 0, __ATOMIC_RELEASE); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    SpinLock& lock_;
  };

 private:
  uint32_t locked_ = 0;
};

}  // namespace reachscan::sweeper
