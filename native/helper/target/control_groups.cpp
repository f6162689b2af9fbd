// Reads /proc/PID/cgroup and mountinfo to find the folders of a process's control groups, for
// versions 1 and 2.
#include "helper/target/control_groups.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "helper/target/process.hpp"
#include "helper/target/text.hpp"

namespace reachscan::helper {
namespace {

// No controller has this name: version 2 keeps it, whatever version 1 keeps.
constexpr char kUnified[] = "(unified)";

struct Membership {
  bool unified;
  std::string path;
};

struct Mount {
  std::string root;  // the group at the mount point
  std::string folder;
};

bool lists(std::string_view names, std::string_view name) {
  std::string all = "," + std::string(names) + ",";
  return all.find("," + std::string(name) + ",") != std::string::npos;
}

// "ID:controllers:/path". Version 2 has the ID 0 and no controllers, and keeps those that version 1
// does not.
std::optional<Membership> membership(std::string_view groups, std::string_view controller) {
  std::optional<Membership> found;
  while (!groups.empty()) {
    std::string_view line = take_line(groups);
    std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string_view names = line.substr(first + 1, second - first - 1);
    std::string path(line.substr(second + 1));
    if (lists(names, controller)) {
      found = Membership{false, path};
    } else if (names.empty() && !found) {
      found = Membership{true, path};
    }
  }
  return found;
}

// "ID PARENT DEVICE ROOT MOUNT-POINT OPTIONS ... - TYPE SOURCE SUPER-OPTIONS"
std::optional<Mount> mount_in(std::string_view line, bool unified, std::string_view controller) {
  std::size_t dash = line.find(" - ");
  if (dash == std::string_view::npos) return std::nullopt;
  std::string_view before = line.substr(0, dash), after = line.substr(dash + 3);
  skip_words(before, 3);
  Mount mount;
  mount.root = take_word(before);
  mount.folder = take_word(before);
  std::string_view type = take_word(after);
  skip_words(after, 1);
  std::string_view options = take_word(after);
  bool right = unified ? type == "cgroup2" : type == "cgroup" && lists(options, controller);
  return right ? std::optional(mount) : std::nullopt;
}

// Returns the part of a path below a root; nothing if it is elsewhere. A path that leads out of the
// namespace ("/..") can only be compared literally.
std::optional<std::string> path_below(const std::string& root, const std::string& path) {
  if (root == "/") {
    if (path.rfind("/..", 0) == 0) return std::nullopt;
    return path == "/" ? "" : path;
  }
  if (path == root) return "";
  if (path.rfind(root + "/", 0) == 0) return path.substr(root.size());
  return std::nullopt;
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool in_outermost_namespace() {
  constexpr char kOutermost[] = "cgroup:[4026531835]";  // PROC_CGROUP_INIT_INO
  char target[64];
  ssize_t length = readlink("/proc/self/ns/cgroup", target, sizeof target);
  return length == sizeof kOutermost - 1 &&
         std::memcmp(target, kOutermost, sizeof kOutermost - 1) == 0;
}

}  // namespace

ControlGroup locate_group(std::string_view groups, std::string_view mounts,
                          std::string_view controller, bool outermost) {
  ControlGroup group;
  std::optional<Membership> member = membership(groups, controller);
  if (!member) return group;  // no hierarchy has this controller
  group.unified = member->unified;
  group.visible = outermost && member->path == "/";
  while (!mounts.empty() && group.folders.empty()) {
    std::optional<Mount> mount = mount_in(take_line(mounts), member->unified, controller);
    std::optional<std::string> below = mount ? path_below(mount->root, member->path) : std::nullopt;
    if (!below) continue;
    group.visible = true;
    for (std::string rest = *below;; rest.resize(rest.rfind('/'))) {
      group.folders.push_back(mount->folder + rest);
      if (rest.empty()) break;
    }
  }
  return group;
}

ControlGroup control_group(pid_t pid, std::string_view controller) {
  ControlGroup group =
      locate_group(read_proc_file(pid, "cgroup", wire::Step::kOpenTarget),
                   try_read_proc_file(getpid(), "mountinfo"), controller, in_outermost_namespace());
  if (!group.folders.empty() && !is_folder(group.folders.front())) group.visible = false;
  return group;
}

bool is_frozen(pid_t pid) {
  ControlGroup old = control_group(pid, "freezer");
  if (!old.folders.empty() && !old.unified) {
    std::string text = short_text(old.folders.front() + "/freezer.state");
    std::string_view rest = text, state = take_word(rest);
    if (state == "FROZEN" || state == "FREEZING") return true;
  }
  ControlGroup group = control_group(pid, kUnified);
  return !group.folders.empty() &&
         number_of_key(group.folders.front() + "/cgroup.events", "frozen") != 0;
}

std::uint64_t number_in(const std::string& path, std::uint64_t otherwise) {
  return number_at_start<std::uint64_t>(short_text(path)).value_or(otherwise);
}

std::uint64_t number_of_key(const std::string& path, std::string_view key) {
  std::string text = read_text(path, SIZE_MAX).value_or(std::string());
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = take_line(rest);
    if (line.size() <= key.size() || !line.starts_with(key)) continue;
    if (line[key.size()] != ' ' && line[key.size()] != ':') continue;
    line.remove_prefix(key.size() + 1);
    return number_at_start<std::uint64_t>(take_word(line)).value_or(0);
  }
  return 0;
}

}  // namespace reachscan::helper
