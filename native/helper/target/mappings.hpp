// Turns the kernel's mapping list into what the sweeper and the reader of the stream want to know.
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

// For each mapping, up to where it is the .bss of the module before it: the kernel may have joined
// that with what was mapped or allocated right behind it. Its start if it is none.
std::vector<std::uint64_t> find_bss_ends(const std::vector<MapEntry>& entries,
                                         const ResidentPages& resident_pages, const Memory& memory);

std::vector<abi::Mapping> classify(const std::vector<MapEntry>& entries,
                                   const std::vector<std::uint64_t>& bss_ends,
                                   const ResidentPages& resident_pages);

Payload mappings_record(const std::vector<MapEntry>& entries,
                        const std::vector<std::uint64_t>& bss_ends);

Payload absent_record(const ResidentPages& resident_pages);

// A program or library that is mapped from the beginning of its file.
struct Module {
  std::uint64_t start;
  std::string path;
  ElfImage image;
};

std::vector<Module> find_modules(const std::vector<MapEntry>& entries,
                                 const ResidentPages& resident_pages, const Memory& memory);

// One module for each file that is mapped from its beginning and is an ELF image; its build id is
// read from memory, so the file need not exist any more.
Payload modules_record(const std::vector<MapEntry>& entries, const ResidentPages& resident_pages,
                       const Memory& memory);

}  // namespace reachscan::helper
