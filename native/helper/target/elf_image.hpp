// The headers of an ELF program or library, in a file or where it is mapped. They may contain
// anything: nothing is trusted further than it can be read.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace reachscan::helper {

// Reads at an offset from the start of the image. Returns false if any byte cannot be read.
using ReadAt = std::function<bool(std::uint64_t offset, void* buffer, std::size_t length)>;

struct ElfImage {
  bool valid = false;
  bool fixed = false;  // its addresses are absolute
  std::vector<Elf64_Phdr> segments;

  // The offset added to its addresses if it is mapped at `start`.
  std::uint64_t bias(std::uint64_t start) const { return fixed ? 0 : start; }

  // The end of its memory in that case, .bss included, in whole pages.
  std::uint64_t end_at(std::uint64_t start) const;

  // Returns the end, in whole pages, of the adjacent segments around `address`; `address` itself if
  // it is in none, since there may be other memory between two segments.
  std::uint64_t loaded_until(std::uint64_t start, std::uint64_t address) const;
};

ElfImage read_elf_image(const ReadAt& read);

// Returns an empty string if it has none.
std::string build_id_of(const ElfImage& image, const ReadAt& read);

}  // namespace reachscan::helper
