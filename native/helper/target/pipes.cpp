// Reopens pipes of the target and copies the data in them with tee().
#include "helper/target/pipes.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "arch/address_space.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

constexpr std::size_t kMaxPipes = 256;      // each adds about 5 us to the pause
constexpr std::size_t kMaxBytes = 1 << 20;  // of all

}  // namespace

OwnPipes find_own_pipes(const std::map<std::string, std::string>& descriptors) {
  OwnPipes read, written, own;
  for (const auto& [link, name] : descriptors) {
    struct stat status;
    if (name.rfind("pipe:", 0) != 0 || lstat(link.c_str(), &status) != 0) continue;
    if ((status.st_mode & S_IRUSR) != 0) read[name] = link;
    if ((status.st_mode & S_IWUSR) != 0) written[name] = link;
  }
  for (const auto& [name, link] : read)
    if (written.contains(name)) own[name] = link;
  return own;
}

PipeReader::PipeReader(const OwnPipes& pipes) : pipes_(pipes) {
  if (pipes.empty()) return;
  complete_ = pipes.size() <= kMaxPipes && pipe2(scratch_, O_CLOEXEC | O_NONBLOCK) == 0;
  if (!complete_) return;
  // Data that does not fit is detected.
  fcntl(scratch_[1], F_SETPIPE_SZ, kMaxBytes);
  bytes_.reserve(kMaxBytes);
}

PipeReader::~PipeReader() {
  for (int end : scratch_)
    if (end >= 0) close(end);
}

void PipeReader::capture() {
  if (!complete_) return;
  for (const auto& [name, link] : pipes_) {
    // The descriptor number may have been reused since it was listed.
    if (read_link(link) != name) continue;
    int pipe = open(link.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    complete_ = pipe >= 0 && read(pipe) && complete_;
    if (pipe >= 0) close(pipe);
  }
}

bool PipeReader::read(int pipe) {
  int waiting = 0;
  if (ioctl(pipe, FIONREAD, &waiting) != 0) return false;
  if (waiting == 0) return true;
  std::size_t before = bytes_.size(), expected = static_cast<std::size_t>(waiting);
  if (before + expected > kMaxBytes) return false;
  if (tee(pipe, scratch_[1], expected, SPLICE_F_NONBLOCK) != waiting) return false;
  bytes_.resize(before + expected);
  // Some pipes preserve message boundaries, and so do copies of their data.
  while (before < bytes_.size()) {
    ssize_t got = ::read(scratch_[0], bytes_.data() + before, bytes_.size() - before);
    if (got <= 0) return false;
    before += static_cast<std::size_t>(got);
  }
  return true;
}

std::vector<std::uint64_t> PipeReader::words(std::size_t word_bytes) const {
  const std::uint64_t kFirstAddress = arch::kPage;
  constexpr std::uint64_t kFirstOfKernel = 1ull << arch::kAddressBits;
  std::vector<std::uint64_t> words;
  for (std::size_t at = 0; at + word_bytes <= bytes_.size(); ++at) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes_.data() + at, word_bytes);
    if (word >= kFirstAddress && word < kFirstOfKernel) words.push_back(word);
  }
  return words;
}

bool PipeReader::has_read_all(const OwnPipes& pipes) const {
  return complete_ && std::all_of(pipes.begin(), pipes.end(),
                                  [this](const auto& pipe) { return pipes_.contains(pipe.first); });
}

}  // namespace reachscan::helper
