// Turns the kernel's mapping list into what the sweeper and the reader of the stream want to know.
#pragma once

#include <vector>

#include "helper/memory.hpp"
#include "helper/process.hpp"
#include "helper/residence.hpp"
#include "helper/stream.hpp"
#include "wire/sweeper_abi.hpp"

namespace reachscan::helper {

std::vector<abi::Mapping> classify(const std::vector<MapEntry>& entries, const Residence& residence,
                                   const Memory& memory);

Payload mappings_record(const std::vector<MapEntry>& entries);

// One module for each file that is mapped from its beginning and is an ELF image; its build id is
// read from memory, so the file need not exist any more.
Payload modules_record(const std::vector<MapEntry>& entries, const Residence& residence,
                       const Memory& memory);

}  // namespace reachscan::helper
