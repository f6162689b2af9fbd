// Reads and parses files of /proc/PID, each with a bound on its size.
#include "helper/target/process.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>

#include "helper/target/text.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

using wire::Step;

constexpr std::size_t kMaxArgumentBytes = 64 << 10;
// Lists of mappings are the longest files: a line per mapping, of which a process may have tens of
// thousands.
constexpr std::size_t kMaxTextBytes = 512u << 20;

std::string proc_path(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

[[noreturn]] void fail_to_read(pid_t pid, const char* name, Step step, int error) {
  std::string path = proc_path(pid, name);
  if (error == ENOENT || error == ESRCH)
    throw Failure(step, Code::kTargetExited, "process " + std::to_string(pid) + " is gone", error,
                  pid);
  Code code = error == EACCES || error == EPERM ? Code::kNotPermitted : Code::kInternal;
  throw Failure(step, code, "cannot read " + path + ": " + std::strerror(error), error, pid);
}

[[noreturn]] void fail_to_parse() {
  throw Failure(Step::kReadMappings, Code::kInternal,
                "the kernel's mapping list is not understood");
}

std::uint64_t take_hex(std::string_view& text) {
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{}) fail_to_parse();
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

void take_character(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) fail_to_parse();
  text.remove_prefix(1);
}

// "start-end perms offset major:minor inode   path"
MapEntry parse_map_line(std::string_view line) {
  MapEntry entry{};
  entry.start = take_hex(line);
  take_character(line, '-');
  entry.end = take_hex(line);
  std::string_view perms = take_word(line);
  if (perms.size() == 4) {
    if (perms[0] == 'r') entry.perms |= wire::kRead;
    if (perms[1] == 'w') entry.perms |= wire::kWrite;
    if (perms[2] == 'x') entry.perms |= wire::kExecute;
    if (perms[3] == 's') entry.perms |= wire::kShared;
  }
  take_character(line, ' ');
  entry.offset = take_hex(line);
  entry.device = take_word(line);
  if (entry.device == "00:00") entry.backing = Backing::kNothing;
  entry.inode = number_at_start<std::uint64_t>(take_word(line)).value_or(0);
  std::size_t path = line.find_first_not_of(' ');
  if (path != std::string_view::npos) entry.path = line.substr(path);
  return entry;
}

// Reads the start of a file, at least this much of it.
std::string read_up_to(std::size_t most, pid_t pid, const char* name, Step step) {
  std::optional<std::string> text = read_text(proc_path(pid, name), most);
  if (!text) fail_to_read(pid, name, step, errno);
  return *std::move(text);
}

}  // namespace

std::string read_proc_file(pid_t pid, const char* name, Step step) {
  std::string text = read_up_to(kMaxTextBytes, pid, name, step);
  if (text.size() < kMaxTextBytes) return text;
  throw Failure(step, Code::kTooLarge,
                proc_path(pid, name) + " is longer than " + std::to_string(kMaxTextBytes >> 20) +
                    " MiB, more than any program needs",
                EFBIG, pid);
}

std::string try_read_proc_file(pid_t pid, const char* name) {
  try {
    return read_proc_file(pid, name, Step::kOpenTarget);
  } catch (const Failure&) {
    return {};
  }
}

std::vector<std::uint64_t> numbers_after(std::string_view text, std::string_view key, int base) {
  std::vector<std::uint64_t> numbers;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    std::size_t at = line.find(key);
    if (at == std::string_view::npos) continue;
    line.remove_prefix(at + key.size());
    if (auto value = number_at_start<std::uint64_t>(take_word(line), base))
      numbers.push_back(*value);
  }
  return numbers;
}

std::vector<MapEntry> parse_mappings(std::string_view text) {
  std::vector<MapEntry> entries;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (!line.empty()) entries.push_back(parse_map_line(line));
  }
  return entries;
}

std::vector<MapEntry> read_mappings(pid_t pid) {
  return parse_mappings(read_proc_file(pid, "maps", Step::kReadMappings));
}

std::uint64_t end_of_main_stack(pid_t pid) {
  for (const MapEntry& entry : read_mappings(pid))
    if (entry.path == "[stack]") return entry.end;
  return 0;
}

std::vector<pid_t> list_threads(pid_t pid) {
  DIR* directory = opendir(proc_path(pid, "task").c_str());
  if (directory == nullptr) fail_to_read(pid, "task", Step::kSeize, errno);
  std::vector<pid_t> threads;
  while (const dirent* entry = readdir(directory))
    if (entry->d_name[0] != '.') threads.push_back(static_cast<pid_t>(std::atoi(entry->d_name)));
  closedir(directory);
  sort_threads(threads, pid);
  return threads;
}

void sort_threads(std::vector<pid_t>& threads, pid_t first) {
  std::sort(threads.begin(), threads.end(), [first](pid_t a, pid_t b) {
    return std::pair(a != first, a) < std::pair(b != first, b);
  });
}

std::string_view behind_name(std::string_view stat) {
  return stat.substr(std::min(stat.rfind(')') + 1, stat.size()));
}

// Returns whether the ninth field marks a worker of the kernel.
bool is_kernel_worker(pid_t pid, pid_t tid) {
  constexpr std::uint64_t kIoWorker = 0x10, kUserWorker = 0x4000;  // PF_ of linux/sched.h
  std::string name = "task/" + std::to_string(tid) + "/stat";
  std::string text = try_read_proc_file(pid, name.c_str());
  std::string_view fields = behind_name(text);
  skip_words(fields, 6);
  auto flags = number_at_start<std::uint64_t>(take_word(fields));
  return flags && (*flags & (kIoWorker | kUserWorker)) != 0;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  if (access(proc_path(pid, "task").c_str(), R_OK) != 0) return children;
  for (pid_t tid : list_threads(pid)) {
    std::string name = "task/" + std::to_string(tid) + "/children";
    std::string text = try_read_proc_file(pid, name.c_str());
    std::string_view rest = text;
    while (auto child = number_at_start<pid_t>(take_word(rest))) children.push_back(*child);
  }
  return children;
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

pid_t inner_id(pid_t pid, pid_t tid) {
  // The last number is the one in the innermost namespace.
  std::string ids = status_field(pid, tid, "NSpid");
  return ids.empty() ? tid
                     : static_cast<pid_t>(std::atoi(ids.c_str() + ids.find_last_of(" \t") + 1));
}

std::string read_link(const std::string& link) {
  char name[64];
  ssize_t length = readlink(link.c_str(), name, sizeof name);
  return {name, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

std::map<std::string, std::string> list_descriptors(pid_t pid) {
  std::map<std::string, std::string> found;
  std::string folder = proc_path(pid, "fd/");
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return found;
  while (const dirent* entry = readdir(directory)) {
    std::string name = read_link(folder + entry->d_name);
    if (!name.empty()) found[folder + entry->d_name] = name;
  }
  closedir(directory);
  return found;
}

std::vector<std::string> command_line(pid_t pid) {
  // A program can make it arbitrarily long (PR_SET_MM).
  std::string text = read_up_to(kMaxArgumentBytes, pid, "cmdline", Step::kOpenTarget);
  text.resize(std::min(text.size(), kMaxArgumentBytes));
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
