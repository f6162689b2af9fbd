// Queries the kernel's socket diagnostics and message queues for waiting data.
#include "helper/target/own_queues.hpp"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "helper/target/process.hpp"
#include "helper/target/text.hpp"

namespace reachscan::helper {
namespace {

constexpr std::size_t kMaxSingleQueries = 16;
constexpr std::uint32_t kAllSockets = 0;
constexpr long kMessageQueues = 0x19800202;  // MQUEUE_MAGIC of the kernel

// A file opened while we are in a namespace of the process shows that namespace permanently.
template <typename Open>
OwnedDescriptor open_in_namespace_of(pid_t pid, const std::string& name, int kind, Open open_it) {
  std::string ours = "/proc/thread-self/ns/" + name;
  std::string theirs = "/proc/" + std::to_string(pid) + "/ns/" + name;
  if (read_link(ours) == read_link(theirs)) return OwnedDescriptor(open_it());
  OwnedDescriptor home(open(ours.c_str(), O_RDONLY | O_CLOEXEC));
  OwnedDescriptor away(open(theirs.c_str(), O_RDONLY | O_CLOEXEC));
  if (home.get() < 0 || setns(away.get(), kind) != 0) return OwnedDescriptor();
  OwnedDescriptor opened(open_it());
  if (setns(home.get(), kind) == 0) return opened;
  throw Failure(wire::Step::kOpenTarget, Code::kInternal,
                "cannot return from the " + name + " namespace of process " + std::to_string(pid),
                errno, pid);
}

struct SocketFacts {
  std::uint32_t inode;
  std::uint8_t type;
  std::uint32_t peer = 0;
  std::uint32_t waiting = 0;  // bytes; of datagrams, those of the first

  // A thread that polls a stream is often woken by a byte.
  bool may_hold_pointer() const {
    constexpr std::uint32_t kShortestPointer = 4;
    return waiting >= (type == SOCK_STREAM ? kShortestPointer : 1);
  }
};

SocketFacts parse_socket(const nlmsghdr* header) {
  const auto* message = static_cast<const unix_diag_msg*>(NLMSG_DATA(header));
  SocketFacts facts{message->udiag_ino, message->udiag_type};
  auto left = static_cast<int>(NLMSG_PAYLOAD(header, sizeof *message));
  for (const auto* part = reinterpret_cast<const rtattr*>(message + 1); RTA_OK(part, left);
       part = RTA_NEXT(part, left)) {
    if (part->rta_type == UNIX_DIAG_PEER) std::memcpy(&facts.peer, RTA_DATA(part), 4);
    if (part->rta_type == UNIX_DIAG_RQLEN) std::memcpy(&facts.waiting, RTA_DATA(part), 4);
  }
  return facts;
}

// Returns false if the answer is complete.
bool parse_answer(const nlmsghdr* header, std::size_t length, std::vector<SocketFacts>& sockets) {
  bool more = false;
  for (; NLMSG_OK(header, length); header = NLMSG_NEXT(header, length)) {
    if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return false;  // the end, or an error
    sockets.push_back(parse_socket(header));
    more = (header->nlmsg_flags & NLM_F_MULTI) != 0;
  }
  return more;
}

// Returns the facts of one unix socket, or of kAllSockets. Empty if the kernel does not answer.
std::vector<SocketFacts> query_sockets(int netlink, std::uint32_t inode) {
  struct {
    nlmsghdr header;
    unix_diag_req request;
  } question{};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags =
      static_cast<std::uint16_t>(NLM_F_REQUEST | (inode == kAllSockets ? NLM_F_DUMP : 0));
  question.request.sdiag_family = AF_UNIX;
  question.request.udiag_states = ~0u;
  question.request.udiag_ino = inode;
  question.request.udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN;
  question.request.udiag_cookie[0] = question.request.udiag_cookie[1] = ~0u;  // any
  std::vector<SocketFacts> sockets;
  if (send(netlink, &question, sizeof question, 0) < 0) return sockets;
  alignas(nlmsghdr) char answer[1 << 15];
  ssize_t length = 0;
  do {
    length = recv(netlink, answer, sizeof answer, 0);
  } while (length > 0 && parse_answer(reinterpret_cast<const nlmsghdr*>(answer),
                                      static_cast<std::size_t>(length), sockets));
  return sockets;
}

// "socket:[4711]"; 0 for other names.
std::uint32_t socket_inode(const std::string& name) {
  constexpr std::string_view kStart = "socket:[";
  std::uint32_t inode = 0;
  if (name.starts_with(kStart))
    std::from_chars(name.data() + kStart.size(), name.data() + name.size(), inode);
  return inode;
}

// The seventh field of each line of /proc/PID/net/unix, after a header line.
std::set<std::uint32_t> unix_sockets(pid_t pid) {
  std::set<std::uint32_t> inodes;
  std::string text = try_read_proc_file(pid, "net/unix");
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view fields = take_line(rest);
    skip_words(fields, 6);
    if (auto inode = number_at_start<std::uint32_t>(take_word(fields))) inodes.insert(*inode);
  }
  return inodes;
}

// Of the mounts that are visible to the process.
std::set<std::uint64_t> mount_ids(pid_t pid) {
  std::set<std::uint64_t> ids;
  std::string mounts = try_read_proc_file(pid, "mountinfo");
  for (std::string_view rest = mounts; !rest.empty();)
    ids.insert(number_at_start<std::uint64_t>(take_line(rest)).value_or(0));
  return ids;
}

bool may_name_posix_queue(const std::string& name) {
  return name.front() == '/' && name.find('/', 1) == std::string::npos &&
         !name.starts_with("/memfd:");
}

// Queues are files on an internal mount of the kernel, which is not visible. Does not access a file
// system that the process sees, so contacts no server.
bool is_posix_queue(pid_t pid, const std::string& link, const std::set<std::uint64_t>& mounts) {
  std::string info = "fdinfo/" + link.substr(link.rfind('/') + 1);
  std::vector<std::uint64_t> mount =
      numbers_after(try_read_proc_file(pid, info.c_str()), "mnt_id:", 10);
  if (mount.empty() || mounts.contains(mount.front())) return false;
  struct statfs status {};
  return statfs(link.c_str(), &status) == 0 && status.f_type == kMessageQueues;
}

// Reads a small file from its start.
std::string read_again(int fd) {
  std::string text;
  char buffer[4096];
  ssize_t length = 0;
  while ((length = pread(fd, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0)
    text.append(buffer, static_cast<std::size_t>(length));
  return text;
}

// "QSIZE:129        NOTIFY:0     SIGNO:0     NOTIFY_PID:0". The descriptor number may have been
// reused since it was listed: then there is nothing to read.
std::string read_posix_queue(const std::string& name, const std::string& link) {
  if (read_link(link) != name) return "";
  return read_again(OwnedDescriptor(open(link.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)).get());
}

std::uint64_t number_named(const std::string& text, const char* key) {
  std::vector<std::uint64_t> numbers = numbers_after(text, key, 10);
  return numbers.empty() ? 0 : numbers.front();
}

}  // namespace

OwnQueues::OwnQueues(pid_t pid, const std::map<std::string, std::string>& descriptors)
    : pid_(pid),
      socket_facts_(open_in_namespace_of(
          pid, "net", CLONE_NEWNET,
          [] { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG); })),
      system_v_queues_(open_in_namespace_of(pid, "ipc", CLONE_NEWIPC, [] {
        return open("/proc/sysvipc/msg", O_RDONLY | O_CLOEXEC);
      })) {
  find_sockets(descriptors);
  find_posix_queues(descriptors);
}

void OwnQueues::find_sockets(const std::map<std::string, std::string>& descriptors) {
  std::set<std::uint32_t> own;
  for (const auto& [link, name] : descriptors)
    if (std::uint32_t inode = socket_inode(name)) own.insert(inode);
  if (own.size() < 2) return;
  std::vector<SocketFacts> all = query_sockets(socket_facts_.get(), kAllSockets);
  for (const SocketFacts& facts : all)
    if (own.contains(facts.inode) && own.contains(facts.peer)) sockets_.insert(facts.peer);
  if (!all.empty()) return;
  std::set<std::uint32_t> listed = unix_sockets(pid_);
  unknown_sockets_ = std::count_if(own.begin(), own.end(),
                                   [&](std::uint32_t inode) { return listed.contains(inode); }) > 1;
}

void OwnQueues::find_posix_queues(const std::map<std::string, std::string>& descriptors) {
  std::map<std::string, std::string> candidates;  // by link
  for (const auto& [link, name] : descriptors)
    if (may_name_posix_queue(name)) candidates[link] = name;
  if (candidates.empty()) return;
  std::set<std::uint64_t> mounts = mount_ids(pid_);
  for (const auto& [link, name] : candidates) {
    struct stat status {};
    if (!is_posix_queue(pid_, link, mounts) || lstat(link.c_str(), &status) != 0) continue;
    PosixQueue& queue = posix_queues_[name];
    queue.link = link;
    queue.access |= status.st_mode & (S_IRUSR | S_IWUSR);
  }
}

bool OwnQueues::sockets_hold_data() const {
  // The kernel walks all sockets for each query.
  std::set<std::uint32_t> asked = sockets_;
  if (asked.size() > kMaxSingleQueries) asked = {kAllSockets};
  return std::any_of(asked.begin(), asked.end(), [this](std::uint32_t inode) {
    std::vector<SocketFacts> told = query_sockets(socket_facts_.get(), inode);
    return std::any_of(told.begin(), told.end(), [this](const SocketFacts& facts) {
      return facts.may_hold_pointer() && sockets_.contains(facts.inode);
    });
  });
}

bool OwnQueues::posix_queues_hold_data() const {
  return std::any_of(posix_queues_.begin(), posix_queues_.end(), [](const auto& entry) {
    const auto& [name, queue] = entry;
    return queue.access == (S_IRUSR | S_IWUSR) &&
           number_named(read_posix_queue(name, queue.link), "QSIZE:") > 0;
  });
}

// Whether a message would notify the process, by a signal or in a thread, of a value that it chose.
bool OwnQueues::posix_queues_notify() const {
  return std::any_of(posix_queues_.begin(), posix_queues_.end(), [this](const auto& entry) {
    const std::string text = read_posix_queue(entry.first, entry.second.link);
    return number_named(text, "NOTIFY_PID:") == static_cast<std::uint64_t>(pid_) &&
           number_named(text, "NOTIFY:") != SIGEV_NONE;
  });
}

// One line per queue, after a header line: key, id, permissions, bytes, messages, and the last
// processes to send and to receive.
bool OwnQueues::system_v_queues_hold_data() const {
  std::string text = read_again(system_v_queues_.get());
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view fields = take_line(rest);
    skip_words(fields, 3);
    std::uint64_t bytes = number_at_start<std::uint64_t>(take_word(fields)).value_or(0);
    skip_words(fields, 1);
    pid_t sender = number_at_start<pid_t>(take_word(fields)).value_or(0);
    pid_t receiver = number_at_start<pid_t>(take_word(fields)).value_or(0);
    if (bytes > 0 && sender == pid_ && (receiver == 0 || receiver == pid_)) return true;
  }
  return false;
}

void OwnQueues::look(std::set<std::string>& clauses) const {
  if (unknown_sockets_) clauses.insert("what waits in unix sockets cannot be seen from here");
  if (sockets_hold_data()) clauses.insert("messages wait in sockets of the program itself");
  if (posix_queues_hold_data() || system_v_queues_hold_data())
    clauses.insert("messages wait in message queues of the program itself");
  if (posix_queues_notify()) clauses.insert("it is to be notified of messages in a queue");
}

}  // namespace reachscan::helper
