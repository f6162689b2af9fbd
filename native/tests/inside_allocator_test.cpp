// What called the function that a thread is in: return addresses, stale words, jumps.
#include "wire/inside_allocator.hpp"

#include <cstring>
#include <map>

#include "check.hpp"

namespace reachscan::tests {
namespace {

constexpr std::uint64_t kAllocator = 0x10000, kMremap = 0x80000, kProgram = 0x400000, kSp = 0x7000;
constexpr abi::CodeRanges kText{1, {{kAllocator, kAllocator + 0x1000}}};

// Code and a stack, written byte by byte.
class Scene {
 public:
  // Writes a call at an address and returns its return address.
  std::uint64_t call(std::uint64_t from, std::uint64_t to) {
    std::uint64_t back = from + 5;
    auto distance = static_cast<std::int32_t>(to - back);
    bytes_[from] = 0xe8;
    put(from + 1, &distance, sizeof distance);
    return back;
  }

  std::uint64_t call_by_register(std::uint64_t from) {
    bytes_[from] = 0xff;
    bytes_[from + 1] = 0xd0;
    return from + 2;
  }

  void push(std::uint64_t word) { put(kSp + 8 * words_++, &word, sizeof word); }

  bool inside(std::uint64_t pc) {
    auto read = [this](std::uint64_t address, void* buffer, std::size_t length) {
      for (std::size_t i = 0; i < length; ++i) static_cast<char*>(buffer)[i] = bytes_[address + i];
      return true;
    };
    return abi::is_inside(kText, {pc, kSp, 0}, read);
  }

 private:
  void put(std::uint64_t at, const void* from, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) bytes_[at + i] = static_cast<const char*>(from)[i];
  }

  std::map<std::uint64_t, char> bytes_;
  std::uint64_t words_ = 0;
};

CASE(a_caller_is_on_top_of_the_stack_or_below_room_that_is_not_used) {
  Scene scene;
  scene.push(1);
  scene.push(2);
  scene.push(scene.call(kAllocator + 0x100, kMremap));
  CHECK(scene.inside(kMremap + 0x30));
}

CASE(a_stale_return_address_on_top_does_not_hide_the_caller) {
  Scene scene;
  scene.push(scene.call_by_register(kProgram));
  scene.push(scene.call(kAllocator + 0x100, kMremap));
  CHECK(scene.inside(kMremap + 0x30));
}

CASE(a_function_may_leave_by_a_jump) {
  Scene scene;
  scene.push(scene.call(kAllocator + 0x100, kAllocator + 0x800));
  CHECK(scene.inside(kMremap));
}

CASE(what_the_program_calls_itself_is_not_inside) {
  Scene direct, indirect;
  direct.push(direct.call(kProgram, kMremap));
  indirect.push(indirect.call_by_register(kProgram));
  CHECK(!direct.inside(kMremap + 0x30));
  CHECK(!indirect.inside(kMremap + 0x30));
}

}  // namespace
}  // namespace reachscan::tests
