// Checks that the clone only sends what a sweep can send.
//
// The clone runs as the target's user, who may write to its memory at any time, so nothing is
// trusted: a sweeper may send only the records of its task, whole and in order, and no more rows
// than the target's memory has room for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/protocol.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

// The most that one sweep can send.
struct SweepBounds {
  abi::Task task;
  std::uint64_t contents;    // bytes of one leak
  bool digests;              // whether they come with each batch of leaks
  bool python;               // whether types of Python objects come with each batch
  std::uint64_t blocks;      // in the heap
  std::uint64_t heap_bytes;  // of all blocks together
  std::uint64_t references;  // words that may point to a block or belong to a recorder's tables
  std::uint64_t reports;     // of progress
  std::uint64_t threads;     // of the clone
};

// Derives the bounds from the target's memory; `register_words` may also point to a block.
SweepBounds bounds_of(abi::Task task, const std::vector<abi::Mapping>& mappings,
                      std::uint64_t register_words);

// Each function throws Failure(kCloneTampered) if no sweeper does that.
class SweepCheck {
 public:
  explicit SweepCheck(const SweepBounds& bounds) : bounds_(bounds) {}

  // Checks records before they are sent.
  void frames(const unsigned char* bytes, std::size_t length);
  void phase(std::uint64_t phase);
  void suspects(std::uint64_t count);
  // Checks the start of one more thread; `in_code`: whether it starts in the sweeper's code.
  void thread(std::uint64_t running, bool in_code) const;
  // Checks a call of one of the target's functions; `allowed`: whether any may be called.
  void call(bool allowed);
  void hint(const abi::QuiesceHint& hint) const;
  // The end: what was sent must add up to `totals`.
  void finish(const abi::Totals& totals) const;

 private:
  class Payload;

  void record(std::uint32_t type, Payload payload);
  void require_order(std::uint32_t type);
  void read(std::uint32_t type, Payload& payload);
  void heap(Payload& payload);
  void type_name(Payload& payload);
  std::uint32_t column_after(std::uint32_t type) const;
  void kinds(Payload& payload);
  void recorded(std::uint32_t type, Payload& payload);
  void recorder(Payload& payload);
  void recorded_thread(Payload& payload);
  void python_function(Payload& payload);
  void closed_module(Payload& payload);
  void warning(Payload& payload);
  void leaks(Payload& payload);
  void column(Payload& payload, std::uint64_t width) const;
  void contents(Payload& payload);
  void doubts(Payload& payload);

  SweepBounds bounds_;
  std::uint32_t next_ = 0;        // the type that must come next, 0 if several may
  std::uint32_t last_ = 0;        // the type of the previous record
  std::uint64_t seen_ = 0;        // record types, a bit each
  std::uint64_t reasons_ = 0;     // of doubts, a bit each
  std::uint32_t batch_ = 0;       // leaks or kinds in the last record of them
  std::uint64_t last_doubt_ = 0;  // end of the doubted positions
  std::uint64_t phase_ = 0, reports_ = 0, calls_ = 0;
  std::uint64_t heaps_ = 0, warnings_ = 0;
  std::uint64_t stated_regions_ = 0, regions_ = 0;
  std::uint64_t contents_ = 0, types_ = 0, kinds_ = 0, references_ = 0;
  std::uint64_t nodes_ = 0, recorded_threads_ = 0, closed_modules_ = 0;
  std::uint64_t python_functions_ = 0;
  std::uint64_t recorded_mappings_ = 0;
  bool listed_suspects_ = false;
  abi::Totals found_{};
};

}  // namespace reachscan::helper
