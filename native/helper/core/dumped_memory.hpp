// Reads what a core file holds of a mapping, on two threads if it is large.
#pragma once

#include <exception>
#include <mutex>
#include <vector>

#include "helper/core/core_file.hpp"
#include "helper/core/core_mappings.hpp"
#include "helper/target/memory.hpp"
#include "helper/target/stretches.hpp"

namespace reachscan::helper {

class DumpedMemory {
 public:
  // Copies what is not zero to the same addresses of another process, unless `copy` is null.
  DumpedMemory(const CoreFile& core, const CoreMapping& mapping, const Memory* copy);

  // Returns where there is data: anything but zeros or, for a file, anything different from the
  // file. Throws Failure(kReadMemory, kBuildCopy).
  std::vector<AddressRange> read();

 private:
  struct Buffers {
    std::vector<char> dumped;
    std::vector<char> original;
  };

  void take_pieces();
  void read_piece(std::uint64_t start, std::uint64_t end, Buffers& buffers,
                  std::vector<AddressRange>& used) const;
  void take_pages(std::uint64_t start, std::uint64_t length, Buffers& buffers,
                  std::vector<AddressRange>& used) const;
  bool is_original(std::uint64_t at, const char* page, Buffers& buffers) const;

  const CoreFile& core_;
  const CoreMapping& mapping_;
  const Memory* copy_;
  std::vector<std::vector<AddressRange>> used_;  // of each piece
  std::mutex lock_;
  std::size_t taken_ = 0;
  std::exception_ptr failure_;
};

}  // namespace reachscan::helper
