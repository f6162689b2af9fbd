// The headers of an ELF program or library, in a file or where it is mapped. Whoever wrote them may
// have written anything: nothing is trusted further than it can be read.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace reachscan::helper {

// Reads at an offset from the begin of the image. False if any byte of that cannot be read.
using ReadAt = std::function<bool(std::uint64_t offset, void* buffer, std::size_t length)>;

struct ElfImage {
  bool valid = false;
  bool fixed = false;  // its addresses are absolute
  std::vector<Elf64_Phdr> segments;

  // What is added to its addresses if it is mapped from `start` on.
  std::uint64_t bias(std::uint64_t start) const { return fixed ? 0 : start; }

  // The end of its memory then, .bss included; whole pages.
  std::uint64_t end_at(std::uint64_t start) const;
};

ElfImage read_elf_image(const ReadAt& read);

// Empty if it has none.
std::string build_id_of(const ElfImage& image, const ReadAt& read);

}  // namespace reachscan::helper
