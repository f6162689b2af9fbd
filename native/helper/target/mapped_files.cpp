// Identifies mapped files with statx(), and finds which pages of shared memory have data.
#include "helper/target/mapped_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>

#include "arch/address_space.hpp"
#include "helper/target/memory_kinds.hpp"
#include "helper/target/text.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;

std::string device_name(unsigned major_number, unsigned minor_number) {
  char text[32];
  std::snprintf(text, sizeof text, "%02x:%02x", major_number, minor_number);
  return text;
}

// Unnamed memory (MAP_SHARED, memfd_create(), shmget()) belongs to a file system that is not
// mounted anywhere.
std::string device_of_shared_memory() {
  struct stat status {};
  int file = memfd_create("reachscan-device", MFD_CLOEXEC);
  bool known = file >= 0 && fstat(file, &status) == 0;
  if (file >= 0) close(file);
  return known ? device_name(major(status.st_dev), minor(status.st_dev)) : std::string();
}

std::string path_of_link(pid_t pid, const MapEntry& entry) {
  char text[96];
  std::snprintf(text, sizeof text, "/proc/%d/map_files/%llx-%llx", static_cast<int>(pid),
                static_cast<unsigned long long>(entry.start),
                static_cast<unsigned long long>(entry.end));
  return text;
}

bool is_same_file(const struct statx& status, const MapEntry& entry) {
  return status.stx_ino == entry.inode &&
         device_name(status.stx_dev_major, status.stx_dev_minor) == entry.device;
}

// Only root may follow the kernel's own link; the path may have changed its meaning.
std::optional<struct statx> status_of(pid_t pid, const MapEntry& entry) {
  std::string by_path = "/proc/" + std::to_string(pid) + "/root" + entry.path;
  for (const std::string& path : {path_of_link(pid, entry), by_path}) {
    struct statx status {};
    if (statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &status) == 0 &&
        is_same_file(status, entry))
      return status;
  }
  return {};
}

// Returns the kind of the file if it is a device node.
std::optional<Backing> backing_of_node(pid_t pid, const MapEntry& entry) {
  std::optional<struct statx> status = status_of(pid, entry);
  bool is_node = status ? S_ISCHR(status->stx_mode) || S_ISBLK(status->stx_mode)
                        : starts_with(entry.path, "/dev/") && !starts_with(entry.path, "/dev/shm/");
  if (!is_node) return {};
  // A private mapping of /dev/zero is anonymous memory; a shared one maps another file.
  bool is_zero = status ? status->stx_rdev_major == 1 && status->stx_rdev_minor == 5
                        : entry.path == "/dev/zero";
  return is_zero ? Backing::kNothing : Backing::kDevice;
}

}  // namespace

MappedFiles::MappedFiles(pid_t pid) : shared_memory_(device_of_shared_memory()) {
  read_mounts(getpid());
  read_mounts(pid);
}

// "25 24 0:23 / /dev/shm rw,relatime shared:3 - tmpfs tmpfs rw"
void MappedFiles::read_mounts(pid_t pid) {
  std::string text = try_read_proc_file(pid, "mountinfo");
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = take_line(rest);
    std::size_t separator = line.find(" - ");
    if (separator == std::string_view::npos) continue;
    std::string_view type = line.substr(separator + 3);
    skip_words(line, 2);
    std::string_view device = take_word(line);
    std::size_t colon = device.find(':');
    if (colon == std::string_view::npos) continue;
    auto major_number = number_at_start<unsigned>(device);
    auto minor_number = number_at_start<unsigned>(device.substr(colon + 1));
    if (major_number && minor_number)
      types_[device_name(*major_number, *minor_number)] = take_word(type);
  }
}

std::vector<MapEntry> MappedFiles::mappings_of(pid_t pid) {
  std::vector<MapEntry> entries = read_mappings(pid);
  for (MapEntry& entry : entries)
    if (entry.backing != Backing::kNothing) entry.backing = backing_of(pid, entry);
  return entries;
}

Backing MappedFiles::backing_of(pid_t pid, const MapEntry& entry) {
  // All of them share one inode.
  if (starts_with(entry.path, "anon_inode:"))
    return entry.path == "anon_inode:[io_uring]" ? Backing::kOther : Backing::kDevice;
  auto [known, is_new] = known_.try_emplace({entry.device, entry.inode}, Backing::kOther);
  if (is_new) known->second = find_backing(pid, entry);
  return known->second;
}

Backing MappedFiles::find_backing(pid_t pid, const MapEntry& entry) const {
  if (entry.device == shared_memory_) return Backing::kSharedMemory;
  auto mounted = types_.find(entry.device);
  std::string type = mounted == types_.end() ? "" : mounted->second;
  // Neither has device nodes, and the first might not respond.
  if (starts_with(type, "fuse") || type == "hugetlbfs") return Backing::kOther;
  bool is_memory = type == "tmpfs" || type == "devtmpfs";
  if (is_memory || entry.path.find("/dev/") != std::string::npos)
    if (auto backing = backing_of_node(pid, entry)) return *backing;
  if (is_memory) return Backing::kSharedMemory;
  if (type.empty() && starts_with(entry.path, "/secretmem")) return Backing::kSecret;
  // A file system without a mount point or a disk may be anything.
  return type.empty() && starts_with(entry.device, "00:") ? Backing::kOther : Backing::kFile;
}

// "1: LEASE  ACTIVE    READ  4711 00:1a:56 0 EOF"
Leases::Leases() {
  std::string locks = read_text("/proc/locks", SIZE_MAX).value_or(std::string());
  for (std::string_view rest = locks; !rest.empty();) {
    std::string_view line = take_line(rest);
    if (line.find(": LEASE ") != std::string_view::npos) (lines_ += line) += '\n';
  }
}

bool Leases::has(const MapEntry& entry) const {
  char file[96];
  std::snprintf(file, sizeof file, " %s:%llu ", entry.device.c_str(),
                static_cast<unsigned long long>(entry.inode));
  return lines_.find(file) != std::string::npos;
}

SharedMemoryFile::SharedMemoryFile(pid_t pid, const MapEntry& entry, const Leases& leases)
    : entry_(entry), descriptor_(-1) {
  if (entry.backing != Backing::kSharedMemory || !is_shared(entry) || !is_readable(entry)) return;
  if (leases.has(entry)) return;
  descriptor_ = open(path_of_link(pid, entry).c_str(), O_RDONLY | O_CLOEXEC);
  struct statx status {};
  if (descriptor_ < 0 || (statx(descriptor_, "", AT_EMPTY_PATH, STATX_INO, &status) == 0 &&
                          is_same_file(status, entry)))
    return;
  // Another file has been mapped there since.
  close(descriptor_);
  descriptor_ = -1;
}

SharedMemoryFile::~SharedMemoryFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::vector<AddressRange> SharedMemoryFile::data() const {
  std::vector<AddressRange> stretches;
  if (descriptor_ < 0) return stretches;
  auto place = [this](off_t offset) {
    return entry_.start + (static_cast<std::uint64_t>(offset) - entry_.offset);
  };
  auto limit = static_cast<off_t>(entry_.offset + (entry_.end - entry_.start));
  for (auto at = static_cast<off_t>(entry_.offset); at < limit;) {
    off_t start = lseek(descriptor_, at, SEEK_DATA);
    if (start < 0 || start >= limit) break;
    at = lseek(descriptor_, start, SEEK_HOLE);
    if (at <= start) break;
    append(stretches, place(start), (place(std::min(at, limit)) + kPage - 1) & ~(kPage - 1));
  }
  return stretches;
}

void SharedMemoryFile::read(const AddressRange& stretch, char* buffer) const {
  std::uint64_t length = stretch.end - stretch.start;
  for (std::uint64_t done = 0; done < length;) {
    std::uint64_t offset = stretch.start - entry_.start + entry_.offset + done;
    ssize_t got = pread(descriptor_, buffer + done, length - done, static_cast<off_t>(offset));
    if (got <= 0) return;  // the file was truncated
    done += static_cast<std::uint64_t>(got);
  }
}

std::vector<AddressRange> shared_memory_data(pid_t pid, const std::vector<MapEntry>& entries) {
  std::vector<AddressRange> all;
  const Leases leases;
  for (const MapEntry& entry : entries) {
    std::vector<AddressRange> data = SharedMemoryFile(pid, entry, leases).data();
    all.insert(all.end(), data.begin(), data.end());
  }
  return all;
}

}  // namespace reachscan::helper
