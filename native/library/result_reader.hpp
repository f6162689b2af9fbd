// Reads the helper's stream: totals, leaks and what belongs to them. Skips everything else, which
// is for reports of other kinds.
#pragma once

#include "library/annotate.hpp"
#include "library/helper_process.hpp"
#include "wire/protocol.hpp"

namespace reachscan::library {

struct Leak {
  std::uint64_t address;
  std::uint64_t size;
  std::uint32_t node;  // of the stack that allocated it, 0 if unknown
  bool is_direct;
  bool is_possible;
  char contents[REACHSCAN_CONTENTS];
};

// A return address, and the node of its caller.
struct Node {
  std::uint64_t pc;
  std::uint32_t number;
  std::uint32_t parent;
};

// Leaks that are only possible, by position. This record may precede the leaks.
struct Doubt {
  std::uint64_t first;
  std::uint64_t count;
};

class ResultReader {
 public:
  ResultReader(HelperProcess& helper, char* error, std::size_t error_size)
      : helper_(helper), error_(error), error_size_(error_size) {}

  // Returns false if the scan failed; `error` then says why.
  bool read();

  UnseenArray<Leak> leaks;  // each direct leak is followed by its descendants
  UnseenArray<Node> nodes;  // sorted by number
  std::uint64_t allocations = 0;
  std::uint64_t bytes = 0;
  std::uint64_t pause_ns = 0;

 private:
  class Fields;

  bool read_records();
  bool take(std::uint32_t type, Fields fields);
  bool take_leaks(Fields fields);
  bool take_nodes(Fields fields);
  void take_origins(Fields fields);
  bool take_doubts(Fields fields);
  void mark_possible();
  bool fail(const char* sentence, std::size_t length);

  HelperProcess& helper_;
  char* error_;
  std::size_t error_size_;
  UnseenArray<char> payload_;
  UnseenArray<Doubt> doubts_;
  std::size_t batch_ = 0;  // where the leaks of the last record start
};

}  // namespace reachscan::library
