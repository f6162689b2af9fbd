// A core file as the kernel writes it, small and in memory: one thread, a program with a build id,
// a heap, a stack and a mapping that was left out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "helper/core/core_file.hpp"

namespace reachscan::tests {

constexpr std::uint64_t kProgram = 0x555555554000, kHeap = 0x555555600000, kStack = 0x7ffffff00000,
                        kLeftOut = 0x7ffff0000000;
constexpr int kThread = 4711;

// `data`: the path of what was left out.
std::string make_core(const std::string& data = "/srv/data");

// A core file with these bytes.
std::unique_ptr<helper::CoreFile> open_core(const std::string& bytes);

}  // namespace reachscan::tests
