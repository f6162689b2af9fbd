// What the helper reads in /proc about a process, here about this one.
#include "helper/target/process.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace reachscan;
using namespace reachscan::tests;

namespace {

// A thread that lives as long as this.
class Sleeper {
 public:
  Sleeper() : tid_(number_.get_future().get()) {}
  ~Sleeper() {
    end_.set_value();
    thread_.join();
  }

  pid_t tid() const { return tid_; }

 private:
  std::promise<pid_t> number_;
  std::promise<void> end_;
  std::thread thread_{[this] {
    number_.set_value(static_cast<pid_t>(syscall(SYS_gettid)));
    end_.get_future().wait();
  }};
  pid_t tid_;
};

// The kernel counts on, and starts again from here: it hands out no lower ones then.
void start_numbers_again() { std::ofstream("/proc/sys/kernel/ns_last_pid") << 300; }

}  // namespace

// Others may be gone a moment later.
CASE(the_first_thread_stands_first) {
  std::vector<Sleeper> sleepers(2);
  start_numbers_again();
  Sleeper low;  // where root runs this
  std::vector<pid_t> all = helper::list_threads(getpid());
  CHECK_EQ(all.size(), 4u);
  CHECK_EQ(all[0], getpid());
  CHECK(all[1] < all[2] && all[2] < all[3]);
}
