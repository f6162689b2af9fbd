// Finds CPython among the loaded images, and reads its frames.
#include "recorder/python/interpreter.hpp"

#include "arch/frames.hpp"

namespace reachscan::recorder {

namespace {

using arch::word_at;

constexpr std::uint64_t kTypeInObject = 8;

// As in Py_Version. Versions without it are recognised by functions that 3.10 and 3.9 introduced.
std::uint32_t version_of(const Symbols& symbols) {
  if (std::uint64_t at = symbols.find("Py_Version", STT_OBJECT); at != 0)
    return value_at<std::uint32_t>(at);
  constexpr std::uint32_t kFinal = 0xf0;
  if (symbols.find("PyModule_AddObjectRef") != 0) return kPython310 << 16 | kFinal;
  if (symbols.find("PyObject_CallNoArgs") != 0) return kPython39 << 16 | kFinal;
  return 0;
}

// Returns null for unknown versions, and for builds with additional fields in each object.
const PythonLayout* layout_of(std::uint32_t version, const Symbols& symbols) {
  constexpr std::uint32_t kReleaseCandidate = 0xc0;
  std::uint64_t type = symbols.find("PyType_Type", STT_OBJECT);
  std::uint64_t code_type = symbols.find("PyCode_Type", STT_OBJECT);
  if (type == 0 || code_type == 0 || (version & 0xff) < kReleaseCandidate) return nullptr;
  if (word_at(code_type + kTypeInObject) != type) return nullptr;
  for (const PythonLayout& layout : kPythonLayouts)
    if (layout.version == version >> 16) return &layout;
  return nullptr;
}

}  // namespace

Interpreter::Interpreter(const LinkMap& link_map, const Tables& tables)
    : loader_(link_map.loader()), rows_(tables) {
  link_map.each([&](const Image& image) {
    Symbols symbols(image);
    if (tables.header().python != 0 || symbols.find("Py_InitializeEx") == 0) return;
    std::uint32_t version = version_of(symbols);
    const PythonLayout* layout = layout_of(version, symbols);
    bool is_understood = layout != nullptr && find_functions(symbols);
    if (is_understood) layout_ = layout;
    tables.header().python = version >> 16 | kIsPython;
    if (is_understood) tables.header().python |= kPythonUnderstood;
  });
}

bool Interpreter::find_functions(const Symbols& symbols) {
  std::uint64_t current = symbols.find("PyThreadState_GetUnchecked");
  if (current == 0) current = symbols.find("_PyThreadState_UncheckedGet");
  std::uint64_t own = symbols.find("PyGILState_GetThisThreadState");
  std::uint64_t line = symbols.find("PyCode_Addr2Line");
  functions_ = {reinterpret_cast<std::uint64_t (*)()>(current),
                reinterpret_cast<std::uint64_t (*)()>(own),
                reinterpret_cast<int (*)(std::uint64_t, int)>(line)};
  code_type_ = symbols.find("PyCode_Type", STT_OBJECT);
  loop_ = symbols.extent("_PyEval_EvalFrameDefault");
  return current != 0 && own != 0 && line != 0 && loop_.bytes != 0;
}

std::uint32_t Interpreter::frames(std::uint64_t thread, PythonFrame* out, std::uint32_t most) {
  const PythonLayout& layout = *layout_;
  std::uint64_t loop = layout.thread_loop == 0 ? 0 : word_at(thread + layout.thread_loop);
  if (layout.thread_loop != 0 && loop == 0) return 0;
  std::uint64_t frame =
      word_at(layout.thread_frame != 0 ? thread + layout.thread_frame : loop + layout.loop_frame);
  std::uint32_t count = 0, placed = 0;
  for (std::uint32_t i = 0; frame != 0 && i < 2 * most; ++i) {
    bool is_outermost = true;
    std::uint64_t host = loop;
    if (layout.frame_mark != 0) {
      auto mark = value_at<std::uint8_t>(frame + layout.frame_mark);
      is_outermost = mark >= (layout.version == kPython311 ? 1 : kFirstOwnerWithoutCode);
      if (layout.version != kPython311) host = frame;
    }
    bool has_code = !is_outermost || host != frame;
    if (has_code && count < most) {
      std::uint64_t pc = pc_of(frame);
      if (pc != 0) out[count++].pc = pc;
    }
    if (is_outermost) {
      while (placed < count) out[placed++].host = host;
      if (loop != 0) loop = word_at(loop + layout.loop_previous);
    }
    frame = word_at(frame + layout.frame_previous);
  }
  return placed;
}

std::uint32_t Interpreter::find_hosts(PythonFrame* python, std::uint32_t python_count,
                                      const MemoFrame* frames, std::uint32_t count) const {
  std::uint32_t found = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!loop_.contains(frames[i].frame.pc)) continue;
    if (found < python_count) python[found].host = frames[i].frame.sp;
    ++found;
  }
  return found == python_count ? python_count : 0;
}

// Returns the pc for a node; 0 for entries that are not functions of a program, which tracebacks
// omit, too.
std::uint64_t Interpreter::pc_of(std::uint64_t frame) {
  constexpr std::uint64_t kTags = 3;
  std::uint64_t code = word_at(frame + layout_->frame_code) & ~kTags;
  // A frame that is being cleared has released its code.
  if (code == 0 || value_at<std::uint32_t>(code) == 0 ||
      word_at(code + kTypeInObject) != code_type_)
    return 0;
  int line = functions_.line(code, instruction(frame, code));
  PythonText name(word_at(code + layout_->code_name), *layout_);
  PythonText file(word_at(code + layout_->code_file), *layout_);
  if (line <= 0 || name.is_empty()) return 0;
  return python_pc(rows_.intern(name, file), static_cast<std::uint32_t>(line));
}

// The offset in the code, in bytes.
int Interpreter::instruction(std::uint64_t frame, std::uint64_t code) const {
  constexpr int kInstructionBytes = 2;
  std::uint64_t at = frame + layout_->frame_instruction;
  if (layout_->version == kPython39) return value_at<std::int32_t>(at);
  if (layout_->version == kPython310) return kInstructionBytes * value_at<std::int32_t>(at);
  return static_cast<int>(word_at(at) - code - layout_->code_instructions);
}

}  // namespace reachscan::recorder
