// Reads damaged files of /proc: lists of mappings, and the system calls of threads.
#include <string>

#include "fuzz_input.hpp"
#include "helper/failure.hpp"
#include "helper/target/process.hpp"
#include "helper/target/seen_thread.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);

namespace reachscan::tests {
namespace {

constexpr char kMappings[] =
    "55d0c0de0000-55d0c0df1000 r-xp 00002000 08:01 1835021                    /usr/bin/x y\n"
    "55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]\n"
    "7f0000000000-7f0000001000 rw-s 00000000 00:01 4 /memfd:a\\012b (deleted)\n"
    "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n";
constexpr char kCall[] = "202 0x7f0000000010 0x80 0x0 0x0 0x0 0x0 0x7ffd00001000 0x7f0000000200\n";

// Overwrites, duplicates and removes characters.
std::string damaged(Input& input, std::string text) {
  while (!input.empty() && !text.empty()) {
    std::size_t at = input.take<unsigned short>() % text.size();
    auto how = input.take<unsigned char>();
    auto length = static_cast<std::size_t>(how >> 2);
    if (how % 4 == 0) {
      text.erase(at, length);
    } else if (how % 4 == 1) {
      text.insert(at, text.substr(at, length));
    } else {
      text[at] = static_cast<char>(input.take<unsigned char>());
    }
  }
  return text;
}

}  // namespace
}  // namespace reachscan::tests

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace reachscan;
  tests::Input input(data, size);
  bool mappings = input.take<unsigned char>() % 2 == 0;
  std::string text = tests::damaged(input, mappings ? tests::kMappings : tests::kCall);
  try {
    if (mappings) {
      helper::parse_mappings(text);
    } else {
      helper::parse_syscall_line(1, text);
    }
  } catch (const helper::Failure&) {
    return 0;
  }
  return 0;
}
