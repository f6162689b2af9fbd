// What is read from a core file, and what is rejected.
#include <elf.h>

#include <cstring>

#include "check.hpp"
#include "core_image.hpp"
#include "helper/core/core_mappings.hpp"
#include "wire/protocol.hpp"

namespace reachscan::tests {
namespace {

using helper::Code;
using helper::CoreFile;

// Returns why the file is refused, empty if it is not.
std::string refusal(const std::string& bytes, Code expected = Code::kBadCore) {
  try {
    open_core(bytes);
  } catch (const helper::Failure& failure) {
    CHECK(failure.code == expected);
    return failure.what();
  }
  return {};
}

std::string changed(std::size_t offset, std::uint16_t value) {
  std::string core = make_core();
  std::memcpy(core.data() + offset, &value, sizeof value);
  return core;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != text.npos; }

CASE(what_a_core_file_tells) {
  std::unique_ptr<CoreFile> core = open_core(make_core());
  CHECK(core->pid() == kThread && core->name() == "program");
  CHECK(core->arguments() == (std::vector<std::string>{"program", "--now"}));
  CHECK(core->threads().size() == 1 && core->threads()[0].tid == kThread);
  CHECK(core->threads()[0].vector_words.size() == 104);
  CHECK(core->segments().size() == 4 && core->files().size() == 2);
  CHECK(core->files()[1].path == "/srv/data" && core->files()[1].offset == 3 * 4096);
  char bytes[16];
  CHECK(core->try_read(kHeap + 4080, bytes, sizeof bytes) && bytes[0] == 'h');
  CHECK(!core->try_read(kHeap + 4081, bytes, sizeof bytes));
  CHECK(!core->try_read(kLeftOut, bytes, 1));
}

CASE(mappings_have_names_and_what_was_left_out_has_none) {
  std::unique_ptr<CoreFile> core = open_core(make_core());
  helper::OriginalFiles nowhere("/proc/self/task");
  helper::CoreMappings mappings = helper::mappings_of(*core, nowhere);
  CHECK(mappings.program == "/usr/bin/program");
  CHECK(mappings.missing_modules.size() == 1);
  CHECK(mappings.all.size() == 4);
  CHECK(mappings.all[0].of_module && mappings.all[0].bytes == 4096);
  CHECK(mappings.all[1].entry.path == "[heap]");
  CHECK(mappings.all[2].entry.path == "/srv/data" && mappings.all[2].bytes == 0);
  CHECK(mappings.all[3].entry.path == "[stack]");
}

// A core file does not tell private ones from shared ones, and heaps lie in private ones.
CASE(huge_pages_may_hold_heaps) {
  for (const char* path : {"/anon_hugepage (deleted)", "/SYSV00000000 (deleted)"}) {
    std::unique_ptr<CoreFile> core = open_core(make_core(path));
    helper::OriginalFiles nowhere("/proc/self/task");
    const helper::MapEntry entry = helper::mappings_of(*core, nowhere).all[2].entry;
    CHECK(entry.path == path);
    CHECK(((entry.perms & wire::kShared) != 0) == (path[1] == 'S'));
  }
}

CASE(a_memfd_is_shared_unless_a_program_was_loaded_from_it) {
  for (const char* program : {"/usr/bin/program", "/memfd:a program"}) {
    std::string core = make_core("/memfd:data");
    core.replace(core.find("/usr/bin/program"), 16, program);
    helper::OriginalFiles nowhere("/proc/self/task");
    helper::CoreMappings mappings = helper::mappings_of(*open_core(core), nowhere);
    CHECK(mappings.program == program && mappings.all[0].of_module);
    CHECK((mappings.all[0].entry.perms & wire::kShared) == 0);
    CHECK((mappings.all[2].entry.perms & wire::kShared) != 0 && !mappings.all[2].of_module);
  }
}

CASE(other_files_are_refused) {
  CHECK(contains(refusal(""), "it is empty"));
  CHECK(contains(refusal("Core blimey"), "does not begin like an ELF file"));
  CHECK(contains(refusal(changed(offsetof(Elf64_Ehdr, e_type), ET_EXEC)), "but a program"));
  std::string foreign = changed(offsetof(Elf64_Ehdr, e_machine), EM_S390);
  CHECK(contains(refusal(foreign, Code::kUnsupportedArchitecture), "not a core file of"));
}

CASE(a_core_file_of_a_machine_with_other_pages_is_refused) {
  std::string core = make_core();
  const std::uint64_t entry[] = {AT_PAGESZ, 4096};
  std::size_t at = core.find({reinterpret_cast<const char*>(entry), sizeof entry});
  core[at + 9] = 0x40;
  CHECK(contains(refusal(core, Code::kUnsupportedPageSize), "pages of 16 KiB"));
}

CASE(a_core_file_without_a_list_of_files_is_refused) {
  std::string core = make_core();
  const std::uint32_t type = NT_FILE, other = 0x7777;
  std::size_t at = core.find({reinterpret_cast<const char*>(&type), sizeof type});
  core.replace(at, sizeof other, reinterpret_cast<const char*>(&other), sizeof other);
  CHECK(contains(refusal(core), "which files were mapped"));
}

CASE(every_truncation_is_told) {
  std::string core = make_core();
  for (std::size_t size = sizeof(Elf64_Ehdr); size < core.size(); size += 97)
    CHECK(contains(refusal(core.substr(0, size)), "truncated"));
}

}  // namespace
}  // namespace reachscan::tests
