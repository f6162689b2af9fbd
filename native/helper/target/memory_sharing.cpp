// Asks the kernel, process by process (kcmp).
#include "helper/target/memory_sharing.hpp"

#include <dirent.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace reachscan::helper {

Sharing share_memory(pid_t one, pid_t other) {
  long order = syscall(SYS_kcmp, one, other, KCMP_VM, 0, 0);
  if (order == 0) return Sharing::kYes;
  return order < 0 && errno == ENOSYS ? Sharing::kUnknown : Sharing::kNo;
}

pid_t find_sharing(pid_t pid, pid_t except, Sharing least) {
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return -1;
  pid_t found = 0;
  while (const dirent* entry = found == 0 ? readdir(folder) : nullptr) {
    pid_t other = std::atoi(static_cast<const char*>(entry->d_name));
    if (other == 0 || other == pid || other == except) continue;
    if (share_memory(pid, other) >= least) found = other;
  }
  closedir(folder);
  return found;
}

}  // namespace reachscan::helper
