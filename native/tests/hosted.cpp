// Answers the sweeper's requests with memory and threads of the test.
#include "hosted.hpp"

#include <sys/mman.h>

#include <cstring>

#include "check.hpp"

namespace reachscan::tests {
namespace {

Host* current = nullptr;

constexpr std::size_t kOutputBytes = 1 << 20;

}  // namespace

Host::Host() : output_(kOutputBytes) {
  CHECK(current == nullptr);
  current = this;
  control.output = reinterpret_cast<uint64_t>(output_.data());
  control.output_capacity = output_.size();
}

Host::~Host() {
  for (const Block& block : blocks_) munmap(block.address, block.bytes);
  current = nullptr;
}

void Host::describe(const std::vector<abi::Mapping>& mappings,
                    const std::vector<abi::Thread>& threads) {
  control.mappings = reinterpret_cast<uint64_t>(mappings.data());
  control.mapping_count = mappings.size();
  control.threads = reinterpret_cast<uint64_t>(threads.data());
  control.thread_count = threads.size();
  helper::SweepBounds bounds = helper::bounds_of(control.task, mappings, control.word_count);
  bounds.contents = control.contents_bytes;
  bounds.digests = control.digests != 0;
  bounds.python = control.python != 0;
  check_.emplace(bounds);
}

void Host::serve() {
  switch (control.request) {
    case abi::Request::kMapMemory:
      control.result = map(control.first);
      return;
    case abi::Request::kUnmapMemory:
      return unmap(reinterpret_cast<void*>(control.first));
    case abi::Request::kFlush:
      return receive(control.first);
    case abi::Request::kPhase:
      if (check_) check_->phase(control.first);
      phases.push_back(static_cast<wire::Phase>(control.first));
      return;
    case abi::Request::kCall:
      return call(*reinterpret_cast<abi::Call*>(control.first));
    case abi::Request::kSuspects: {
      if (check_) check_->suspects(control.second);
      const auto* first = reinterpret_cast<const abi::Suspect*>(control.first);
      suspects.assign(first, first + control.second);
      return;
    }
    case abi::Request::kStartThread:  // refused: result stays 0
    case abi::Request::kEndThreads:
    case abi::Request::kNap:
      return;
    case abi::Request::kFinished:
      if (check_) check_->finish(control.totals);
      finished = true;
      return;
    case abi::Request::kRefused:
      throw Refused(static_cast<abi::Refusal>(control.first),
                    reinterpret_cast<const char*>(control.second), control.third);
    case abi::Request::kNone:
      break;
  }
  fail(__FILE__, __LINE__, "the sweeper made an unknown request");
}

void Host::call(abi::Call& call) {
  using Function = uint64_t (*)(uint64_t, uint64_t, uint64_t, uint64_t);
  const uint64_t* a = call.arguments;
  call.outcome = refused_calls;
  if (call.outcome == abi::Call::Outcome::kReturned)
    call.value = reinterpret_cast<Function>(call.function)(a[0], a[1], a[2], a[3]);
}

uint64_t Host::map(uint64_t bytes) {
  if (bytes > memory_limit) return 0;
  // Empty lists request memory too; the kernel maps at least a page.
  uint64_t length = bytes == 0 ? heaps::kPage : bytes;
  void* address = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return 0;
  blocks_.push_back({address, length});
  return reinterpret_cast<uint64_t>(address);
}

void Host::unmap(void* address) {
  for (Block& block : blocks_) {
    if (block.address != address) continue;
    munmap(block.address, block.bytes);
    block = blocks_.back();
    blocks_.pop_back();
    return;
  }
  fail(__FILE__, __LINE__, "the sweeper gave memory back that it did not get");
}

void Host::receive(uint64_t bytes) {
  CHECK(bytes <= output_.size());
  if (check_) check_->frames(output_.data(), bytes);
  for (std::size_t at = 0; at < bytes;) {
    wire::FrameHeader header;
    CHECK(at + sizeof header <= bytes);
    std::memcpy(&header, output_.data() + at, sizeof header);
    at += sizeof header;
    CHECK(header.length <= bytes - at);
    stream.push_back({header.type,
                      {output_.begin() + static_cast<std::ptrdiff_t>(at),
                       output_.begin() + static_cast<std::ptrdiff_t>(at) +
                           static_cast<std::ptrdiff_t>(header.length)}});
    at += header.length;
  }
}

std::vector<Frame> Host::frames(uint32_t type) const {
  std::vector<Frame> found;
  for (const Frame& frame : stream)
    if (frame.type == type) found.push_back(frame);
  return found;
}

std::vector<Leak> Host::leaks() const {
  std::vector<Leak> found;
  for (const Frame& frame : frames(wire::kLeaks)) {
    auto at = reinterpret_cast<uint64_t>(frame.payload.data());
    std::size_t count = heaps::load<uint32_t>(at), width = heaps::load<uint32_t>(at + 4);
    CHECK_EQ(width, std::size_t{wire::kLeadWords});
    CHECK_EQ(frame.payload.size(), 8 + count * (20 + 8 * width));
    uint64_t address = at + 8, size = address + 8 * count, parent = size + 8 * count;
    uint64_t words = parent + 4 * count;
    for (std::size_t i = 0; i < count; ++i) {
      Leak leak{heaps::word(address + 8 * i),
                heaps::word(size + 8 * i),
                heaps::load<uint32_t>(parent + 4 * i),
                {}};
      for (std::size_t w = 0; w < width; ++w)
        leak.words[w] = heaps::word(words + 8 * (i * width + w));
      found.push_back(leak);
    }
  }
  return found;
}

}  // namespace reachscan::tests

namespace reachscan::sweeper {

abi::Control* control() { return &tests::current->control; }
void trap() { tests::current->serve(); }

}  // namespace reachscan::sweeper
