// Converts the kernel's list of mappings for the sweeper and the reader of the stream.
#pragma once

#include <string>
#include <vector>

#include "helper/stream.hpp"
#include "helper/target/elf_image.hpp"
#include "helper/target/memory.hpp"
#include "helper/target/process.hpp"
#include "helper/target/resident_pages.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

// For each mapping, the end of the part that is the .bss of the preceding module: the kernel may
// have joined that with memory mapped or allocated right after it. The mapping's start if it is not
// a .bss.
std::vector<std::uint64_t> find_bss_ends(const std::vector<MapEntry>& entries,
                                         const ResidentPages& resident_pages, const Memory& memory);

std::vector<abi::Mapping> classify(const std::vector<MapEntry>& entries,
                                   const std::vector<std::uint64_t>& bss_ends,
                                   const ResidentPages& resident_pages);

Payload mappings_record(const std::vector<MapEntry>& entries,
                        const std::vector<std::uint64_t>& bss_ends);

Payload absent_record(const ResidentPages& resident_pages);

// A program or library that is mapped from the start of its file.
struct Module {
  std::uint64_t start;
  std::string path;
  ElfImage image;
};

std::vector<Module> find_modules(const std::vector<MapEntry>& entries,
                                 const ResidentPages& resident_pages, const Memory& memory);

// Describes each ELF image mapped from the start of its file. Build ids are read from memory, so
// the file need not exist any more.
Payload modules_record(const std::vector<MapEntry>& entries, const ResidentPages& resident_pages,
                       const Memory& memory);

}  // namespace reachscan::helper
