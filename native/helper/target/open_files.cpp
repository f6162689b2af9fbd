// Lists descriptors and file locks, and finds those that a clone must not share or close.
#include "helper/target/open_files.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <set>
#include <string>
#include <string_view>

#include "helper/target/process.hpp"
#include "helper/target/text.hpp"

namespace reachscan::helper {
namespace {

// File systems with a flush operation that leaves the machine or wakes a server.
bool is_served(std::string_view type) {
  constexpr std::string_view kServed[] = {"fuse", "fuseblk", "virtiofs", "nfs",      "nfs4",
                                          "cifs", "smb3",    "afs",      "orangefs", "lustre"};
  return type.starts_with("fuse.") ||
         std::find(std::begin(kServed), std::end(kServed), type) != std::end(kServed);
}

// Mounts by id.
struct Mounts {
  std::set<int> local;
  std::set<int> served;
};

// "36 35 98:0 /root /mount/point rw,noatime shared:1 - ext3 /dev/root rw,errors=continue"
void add_mounts(pid_t pid, Mounts& mounts) {
  std::string text = try_read_proc_file(pid, "mountinfo");
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = take_line(rest);
    std::size_t separator = line.find(" - ");
    if (separator == std::string_view::npos) continue;
    std::string_view type = line.substr(separator + 3);
    (is_served(take_word(type)) ? mounts.served : mounts.local)
        .insert(number_at_start<int>(line).value_or(0));
  }
}

// A process with a root of its own does not see the mount that its root is on; ids are the same
// here.
Mounts mounts_seen_from(pid_t pid) {
  Mounts mounts;
  add_mounts(getpid(), mounts);
  add_mounts(pid, mounts);
  return mounts;
}

// Returns a field of /proc/PID/fdinfo/N, without its key and leading blanks; empty if missing.
std::string_view field(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    std::string_view line = text.substr(at + key.size());
    line = line.substr(0, line.find('\n'));
    return line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
  }
  return {};
}

// "API:\taa:features:known"; bit 1 of the features is UFFD_FEATURE_EVENT_FORK.
bool receives_fork_events(std::string_view api) {
  std::size_t colon = api.find(':');
  unsigned features = 0;
  if (colon != std::string_view::npos)
    std::from_chars(api.data() + colon + 1, api.data() + api.size(), features, 16);
  return (features & 2) != 0;
}

std::string target_of(const std::string& link) {
  char target[PATH_MAX];
  ssize_t length = readlink(link.c_str(), target, sizeof target);
  return std::string(target, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
}

// Pipes and sockets have names without a slash. Memory (memfd, System V, secret) has one that was
// never in a folder: "/memfd:name (deleted)".
bool is_of_kernel(const std::string& name) {
  return !name.starts_with("/") || name.starts_with("/dev/zero") ||
         (name.ends_with(" (deleted)") && name.rfind('/') == 0);
}

// Notes what a file is that is not on a local mount. A mount that is visible neither here nor to
// the process is internal to the kernel, or in another mount namespace and then of any type.
void note_file(bool on_served_mount, const std::string& name, OpenFiles& found) {
  found.served |= on_served_mount || !is_of_kernel(name);
  found.counts_events |= name == "anon_inode:[perf_event]";
}

}  // namespace

OpenFiles read_open_files(pid_t pid) {
  OpenFiles found;
  std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return found;
  Mounts mounts = mounts_seen_from(pid);
  while (const dirent* entry = readdir(directory)) {
    std::string info = try_read_proc_file(pid, ("fdinfo/" + std::string(entry->d_name)).c_str());
    std::string_view id = field(info, "mnt_id:");
    int mount = 0;
    if (std::from_chars(id.data(), id.data() + id.size(), mount).ec != std::errc{}) continue;
    if (!mounts.local.contains(mount))
      note_file(mounts.served.contains(mount), target_of(folder + "/" + entry->d_name), found);
    found.locked |= field(info, "lock:").find("POSIX") != std::string_view::npos;
    found.gets_fork_events |= receives_fork_events(field(info, "API:"));
  }
  closedir(directory);
  return found;
}

}  // namespace reachscan::helper
