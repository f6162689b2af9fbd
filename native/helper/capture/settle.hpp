// Rereads the pages of changing heaps. Reading the memory of a running process takes so long that
// the result is inconsistent with what its allocator writes meanwhile. But few pages of its heaps
// change within that time. These can be reread within microseconds, until two consecutive readings
// agree.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "helper/capture/copy.hpp"

namespace reachscan::helper {

class HeapStabilizer {
 public:
  explicit HeapStabilizer(pid_t pid);

  // Updates what `copy` has captured.
  void settle(MemoryCopy& copy);

 private:
  // Pages, and their address in the copy.
  struct Piece {
    std::uint64_t address;
    char* copy;
    std::uint64_t length;
  };

  static std::vector<Piece> pieces_of(const MemoryCopy& copy, std::vector<AddressRange>& pages);
  static std::vector<Piece> those_within(const std::vector<Piece>& all,
                                         const std::vector<AddressRange>& pages);
  static std::vector<AddressRange> heaps_of(const std::vector<MapEntry>& mappings,
                                            const std::vector<Piece>& pieces);
  static bool begins_thread_heap(const Piece& piece);
  std::vector<AddressRange> reread(const std::vector<Piece>& pieces);
  bool update(const Piece* pieces, std::size_t count, std::uint64_t bytes,
              std::vector<AddressRange>& changed);

  pid_t pid_;
  std::vector<char> buffer_;
  std::vector<iovec> remote_;
  std::vector<AddressRange> last_changed_;  // between the last two calls
};

}  // namespace reachscan::helper
