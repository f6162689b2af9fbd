// Where CPython keeps what a stack needs, by version: offsets in bytes. They are fixed from a
// version's first release candidate on. Checked against the headers of each version.
#pragma once

#include <cstdint>

namespace reachscan::recorder {

struct PythonLayout {
  std::uint32_t version;  // as in Py_Version, without micro and level
  // In the thread state: the innermost frame, or 0 if only the loop has it.
  std::uint16_t thread_frame;
  // In the thread state: what the innermost evaluation loop keeps on the C stack; 0: nothing.
  std::uint16_t thread_loop;
  std::uint16_t loop_frame;
  std::uint16_t loop_previous;
  std::uint16_t frame_previous;
  std::uint16_t frame_code;
  std::uint16_t frame_instruction;  // an address since 3.11, before that a number (3.10: of pairs)
  // Identifies the outermost frame of a loop. 3.11: a non-zero byte; later: the owner of a frame
  // without code, which is on the C stack; before: 0, since each frame is one.
  std::uint16_t frame_mark;
  std::uint16_t code_first_line;
  std::uint16_t code_file;
  std::uint16_t code_name;  // the qualified name, if there is one
  std::uint16_t code_instructions;
  std::uint16_t text_bytes;  // of the head of a str; its characters follow, in ASCII
  std::uint16_t wide_text_bytes;
};

constexpr std::uint32_t kPython39 = 0x0309, kPython310 = 0x030a, kPython311 = 0x030b;

constexpr PythonLayout kPythonLayouts[] = {
    {kPython39, 24, 0, 0, 0, 24, 32, 104, 0, 40, 104, 112, 0, 48, 72},
    {kPython310, 24, 48, 0, 8, 24, 32, 96, 0, 40, 104, 112, 0, 48, 72},
    {kPython311, 0, 56, 8, 16, 48, 32, 56, 68, 72, 112, 128, 184, 48, 72},
    {0x030c, 0, 56, 0, 8, 8, 0, 56, 70, 68, 112, 128, 192, 40, 56},
    {0x030d, 72, 0, 0, 0, 8, 0, 56, 70, 68, 112, 128, 200, 40, 56},
    {0x030e, 72, 0, 0, 0, 8, 0, 56, 74, 68, 112, 128, 208, 40, 56},
};

constexpr std::uint8_t kFirstOwnerWithoutCode = 3;

}  // namespace reachscan::recorder
