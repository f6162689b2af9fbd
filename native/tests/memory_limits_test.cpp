// Where control groups are found, how much memory they have left, and whether they have CPU quotas,
// according to their files.
#include "helper/target/memory_limits.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "check.hpp"
#include "helper/target/processor_quota.hpp"

using namespace reachscan::helper;

namespace {

constexpr char kUnified[] =
    "29 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n";
constexpr char kOld[] =
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
constexpr std::uint64_t kMiB = 1 << 20;

std::string folders_of(const ControlGroup& group) {
  std::string all;
  for (const std::string& folder : group.folders) all += folder + " ";
  return all;
}

// A folder that is removed at the end of the run.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/reachscan-room-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { [[maybe_unused]] int status = std::system(("rm -r " + path_).c_str()); }
  void add(const std::string& name) const { mkdir((path_ + name).c_str(), 0700); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + name) << text << "\n";
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

CASE(a_group_of_version_2_has_those_around_it) {
  ControlGroup group = locate_group("0::/a/b\n", kUnified, "memory", false);
  CHECK(group.visible && group.unified);
  CHECK_EQ(folders_of(group), "/sys/fs/cgroup/a/b /sys/fs/cgroup/a /sys/fs/cgroup ");
}

CASE(version_1_goes_before_version_2) {
  const char* groups = "4:memory:/x\n1:cpu,cpuacct:/\n0::/y\n";
  ControlGroup memory = locate_group(groups, kOld, "memory", true);
  CHECK(memory.visible && !memory.unified);
  CHECK_EQ(folders_of(memory), "/sys/fs/cgroup/memory/x /sys/fs/cgroup/memory ");
  CHECK_EQ(folders_of(locate_group(groups, kOld, "cpu", true)), "/sys/fs/cgroup/cpu,cpuacct ");
}

CASE(a_mount_may_show_only_a_part) {
  const char* mount = "35 31 0:32 /docker/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  CHECK_EQ(folders_of(locate_group("4:memory:/docker/c1/d\n", mount, "memory", false)),
           "/sys/fs/cgroup/memory/d /sys/fs/cgroup/memory ");
  for (const char* other : {"4:memory:/docker/c2\n", "4:memory:/docker/c10\n"})
    CHECK(!locate_group(other, mount, "memory", false).visible);
}

CASE(what_lies_outside_of_a_namespace_is_not_seen) {
  CHECK(!locate_group("0::/../other\n", kUnified, "memory", false).visible);
  CHECK(!locate_group("0::/\n", "", "memory", false).visible);
  CHECK(locate_group("0::/\n", "", "memory", true).visible);
  CHECK(locate_group("", "", "memory", false).visible);  // no controller
}

CASE(the_least_of_all_groups_counts) {
  Folder folder;
  folder.add("/in");
  folder.write("/memory.max", "104857600");
  folder.write("/memory.current", "83886080");
  folder.write("/memory.stat", "inactive_file 10485760\nfile_dirty 1048576\nfile_writeback 0");
  folder.write("/memory.swap.max", "0");
  folder.write("/in/memory.max", "max");
  ControlGroup group{true, true, {folder.path() + "/in", folder.path()}};
  CHECK_EQ(room_in_group(group, 50 * kMiB).bytes, (20 + 9) * kMiB);
  folder.write("/memory.swap.max", "max");
  CHECK_EQ(room_in_group(group, 50 * kMiB).bytes, (20 + 9 + 50) * kMiB);
  folder.write("/in/memory.high", "1048576");
  folder.write("/in/memory.current", "2097152");
  CHECK_EQ(room_in_group(group, 0).bytes, 0u);
  CHECK(!room_in_group(group, 0).together);
  folder.write("/in/memory.oom.group", "1");
  CHECK(room_in_group(group, 0).together);
}

CASE(version_1_may_limit_memory_and_swap_together) {
  Folder folder;
  folder.write("/memory.limit_in_bytes", "104857600");
  folder.write("/memory.usage_in_bytes", "52428800");
  folder.write("/memory.memsw.limit_in_bytes", "9223372036854771712");
  ControlGroup group{false, true, {folder.path()}};
  CHECK_EQ(room_in_group(group, 10 * kMiB).bytes, 60 * kMiB);
  folder.write("/memory.memsw.limit_in_bytes", "104857600");
  folder.write("/memory.memsw.usage_in_bytes", "94371840");
  CHECK_EQ(room_in_group(group, 10 * kMiB).bytes, 10 * kMiB);
  folder.write("/memory.oom_control", "oom_kill_disable 1\nunder_oom 0");
  CHECK(room_in_group(group, 0).together);
}

CASE(only_quotas_that_are_not_ours_count) {
  Folder folder;
  for (const char* name : {"/theirs", "/ours"}) folder.add(name);
  std::string theirs_folder = folder.path() + "/theirs", ours_folder = folder.path() + "/ours";
  for (bool unified : {true, false}) {
    ControlGroup theirs{unified, true, {theirs_folder, folder.path()}};
    ControlGroup ours{unified, true, {ours_folder, folder.path()}};
    const char* file = unified ? "/cpu.max" : "/cpu.cfs_quota_us";
    const char* limit = unified ? "50000 100000" : "50000";
    CHECK(!has_other_quota(theirs, ours));  // no such controller
    for (const char* name : {"/theirs", "/ours", ""}) folder.write(std::string(name) + file, limit);
    CHECK(has_other_quota(theirs, ours));
    CHECK(!has_other_quota(theirs, theirs));
    folder.write(std::string("/theirs") + file, unified ? "max 100000" : "-1");
    CHECK(!has_other_quota(theirs, ours));
  }
}
