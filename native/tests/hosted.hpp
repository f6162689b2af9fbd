// Takes the helper's role: serves the requests of the sweeper's code within the test process.
#pragma once

#include <array>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "helper/sweep/sweep_check.hpp"
#include "sweeper/blob/host.hpp"

namespace reachscan::tests {

using heaps::uint32_t;
using heaps::uint64_t;

// Thrown by a refusal, which never returns in the real sweeper.
struct Refused : std::exception {
  Refused(abi::Refusal kind, const char* text, uint64_t about)
      : refusal(kind), reason(text), address(about) {}
  const char* what() const noexcept override { return reason.c_str(); }

  abi::Refusal refusal;
  std::string reason;
  uint64_t address;
};

struct Frame {
  uint32_t type;
  std::vector<unsigned char> payload;
};

struct Leak {
  uint64_t address;
  uint64_t size;
  uint32_t parent;
  std::array<uint64_t, wire::kLeadWords> words;
};

// Only one may exist at a time: control() and trap() refer to it.
class Host {
 public:
  Host();
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Describes a process to sweep. From then on, the sweeper must send nothing that the helper
  // refuses.
  void describe(const std::vector<abi::Mapping>& mappings, const std::vector<abi::Thread>& threads);

  void serve();

  // All leaks of the stream, in order.
  std::vector<Leak> leaks() const;
  std::vector<Frame> frames(uint32_t type) const;

  abi::Control control{};
  std::vector<Frame> stream;
  std::vector<wire::Phase> phases;
  std::vector<abi::Suspect> suspects;
  bool finished = false;
  uint64_t memory_limit = ~0ull;                                     // larger requests fail
  abi::Call::Outcome refused_calls = abi::Call::Outcome::kReturned;  // how calls end

 private:
  void call(abi::Call& call);
  uint64_t map(uint64_t bytes);
  void unmap(void* address);
  void receive(uint64_t bytes);

  struct Block {
    void* address;
    uint64_t bytes;
  };
  std::optional<helper::SweepCheck> check_;
  std::vector<Block> blocks_;
  std::vector<unsigned char> output_;
};

}  // namespace reachscan::tests
