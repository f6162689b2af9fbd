#include "helper/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <string_view>

#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

std::string proc_path(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

[[noreturn]] void fail_to_read(pid_t pid, const char* name, Step step, int error) {
  std::string path = proc_path(pid, name);
  if (error == ENOENT || error == ESRCH)
    throw Failure(step, "target-exited", "process " + std::to_string(pid) + " is gone", error, pid);
  const char* code = error == EACCES || error == EPERM ? "not-permitted" : "internal";
  throw Failure(step, code, "cannot read " + path + ": " + std::strerror(error), error, pid);
}

std::uint64_t take_hex(std::string_view& text) {
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{})
    throw Failure(Step::kReadMappings, "internal", "the kernel's mapping list is not understood");
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::string_view take_word(std::string_view& text) {
  std::size_t start = text.find_first_not_of(' ');
  if (start == std::string_view::npos) return {};
  std::size_t end = text.find(' ', start);
  if (end == std::string_view::npos) end = text.size();
  std::string_view word = text.substr(start, end - start);
  text.remove_prefix(end);
  return word;
}

// "start-end perms offset major:minor inode   path"
MapEntry parse_map_line(std::string_view line) {
  MapEntry entry{};
  entry.start = take_hex(line);
  line.remove_prefix(1);
  entry.end = take_hex(line);
  std::string_view perms = take_word(line);
  if (perms.size() == 4) {
    if (perms[0] == 'r') entry.perms |= wire::kRead;
    if (perms[1] == 'w') entry.perms |= wire::kWrite;
    if (perms[2] == 'x') entry.perms |= wire::kExecute;
    if (perms[3] == 's') entry.perms |= wire::kShared;
  }
  line.remove_prefix(1);
  entry.offset = take_hex(line);
  entry.device = take_word(line);
  std::string_view inode = take_word(line);
  std::from_chars(inode.data(), inode.data() + inode.size(), entry.inode);
  std::size_t path = line.find_first_not_of(' ');
  if (path != std::string_view::npos) entry.path = line.substr(path);
  return entry;
}

}  // namespace

std::string read_proc_file(pid_t pid, const char* name, Step step) {
  int fd = open(proc_path(pid, name).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_to_read(pid, name, step, errno);
  std::string text;
  char buffer[1 << 16];
  ssize_t length;
  while ((length = read(fd, buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<std::size_t>(length));
  int error = errno;
  close(fd);
  if (length < 0) fail_to_read(pid, name, step, error);
  return text;
}

std::string try_read_proc_file(pid_t pid, const char* name) {
  try {
    return read_proc_file(pid, name, Step::kOpenTarget);
  } catch (const Failure&) {
    return {};
  }
}

std::vector<MapEntry> read_mappings(pid_t pid) {
  std::string text = read_proc_file(pid, "maps", Step::kReadMappings);
  std::vector<MapEntry> entries;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::size_t end = std::min(rest.find('\n'), rest.size());
    if (end > 0) entries.push_back(parse_map_line(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return entries;
}

std::vector<pid_t> list_threads(pid_t pid) {
  DIR* directory = opendir(proc_path(pid, "task").c_str());
  if (directory == nullptr) fail_to_read(pid, "task", Step::kSeize, errno);
  std::vector<pid_t> threads;
  while (const dirent* entry = readdir(directory))
    if (entry->d_name[0] != '.') threads.push_back(static_cast<pid_t>(std::atoi(entry->d_name)));
  closedir(directory);
  std::sort(threads.begin(), threads.end());
  return threads;
}

std::string status_field(pid_t pid, pid_t tid, const char* field) {
  std::string name = "task/" + std::to_string(tid) + "/status";
  std::string text = try_read_proc_file(pid, name.c_str());
  std::string key = "\n" + std::string(field) + ":";
  std::size_t start = text.find(key);
  if (start == std::string::npos) return {};
  start = text.find_first_not_of(" \t", start + key.size());
  if (start == std::string::npos) return {};
  return text.substr(start, text.find('\n', start) - start);
}

std::vector<std::string> command_line(pid_t pid) {
  std::string text = read_proc_file(pid, "cmdline", Step::kOpenTarget);
  std::vector<std::string> arguments;
  for (std::size_t start = 0; start < text.size();) {
    std::size_t end = std::min(text.find('\0', start), text.size());
    arguments.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return arguments;
}

std::string executable_path(pid_t pid) {
  char target[PATH_MAX];
  ssize_t length = readlink(proc_path(pid, "exe").c_str(), target, sizeof target);
  if (length < 0) fail_to_read(pid, "exe", Step::kOpenTarget, errno);
  return std::string(target, static_cast<std::size_t>(length));
}

std::string thread_name(pid_t pid, pid_t tid) {
  std::string name = "task/" + std::to_string(tid) + "/comm";
  std::string text = read_proc_file(pid, name.c_str(), Step::kOpenTarget);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace reachscan::helper
