// Writes a small core file as the kernel would.
#include "core_image.hpp"

#include <elf.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <unistd.h>

#include <cstring>

#include "arch/address_space.hpp"
#include "arch/machine.hpp"

namespace reachscan::tests {
namespace {

using arch::kPage;

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_note(std::string& notes, const char* owner, std::uint32_t type,
                 const std::string& value) {
  std::string name(owner, std::strlen(owner) + 1);
  append(notes, Elf64_Nhdr{static_cast<Elf64_Word>(name.size()),
                           static_cast<Elf64_Word>(value.size()), type});
  for (std::string part : {name, value}) {
    part.resize((part.size() + 3) & ~std::size_t{3});
    notes += part;
  }
}

std::string file_list(const std::string& data) {
  std::string files;
  for (std::uint64_t word : {std::uint64_t{2}, kPage, kProgram, kProgram + 2 * kPage,
                             std::uint64_t{0}, kLeftOut, kLeftOut + kPage, std::uint64_t{3}})
    append(files, word);
  return files + std::string("/usr/bin/program\0", 17) + data + '\0';
}

std::string make_notes(const std::string& data) {
  std::string notes;
  elf_prstatus status{};
  status.pr_pid = kThread;
  append_note(notes, "CORE", NT_PRSTATUS, {reinterpret_cast<char*>(&status), sizeof status});
  elf_prpsinfo info{};
  info.pr_pid = kThread;
  std::strcpy(info.pr_fname, "program");
  std::strcpy(info.pr_psargs, "program --now");
  append_note(notes, "CORE", NT_PRPSINFO, {reinterpret_cast<char*>(&info), sizeof info});
  std::string auxiliary;
  for (std::uint64_t word :
       {std::uint64_t{AT_ENTRY}, kProgram + 0x100, std::uint64_t{AT_RANDOM}, kStack + 0x100,
        std::uint64_t{AT_PAGESZ}, arch::kPage, std::uint64_t{AT_NULL}, std::uint64_t{0}})
    append(auxiliary, word);
  append_note(notes, "CORE", NT_AUXV, auxiliary);
  append_note(notes, "CORE", NT_FILE, file_list(data));
  append_note(notes, "LINUX", arch::kVectorState, std::string(832, 'v'));
  return notes;
}

// The first page of a program.
std::string make_program() {
  std::string page;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_type = ET_DYN;
  header.e_phoff = sizeof header;
  header.e_phnum = 2;
  append(page, header);
  append(page, Elf64_Phdr{PT_LOAD, PF_R | PF_X, 0, 0, 0, 2 * kPage, 2 * kPage, kPage});
  append(page, Elf64_Phdr{PT_INTERP, PF_R, 0x300, 0x300, 0x300, 8, 8, 1});
  page.resize(kPage);
  return page;
}

}  // namespace

std::string make_core(const std::string& data) {
  std::string notes = make_notes(data);
  constexpr int kSegments = 5;
  std::uint64_t begin =
      (sizeof(Elf64_Ehdr) + kSegments * sizeof(Elf64_Phdr) + notes.size() + kPage) & ~(kPage - 1);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_CORE;
  header.e_machine = arch::kElfMachine;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = kSegments;
  std::string core;
  append(core, header);
  append(core, Elf64_Phdr{PT_NOTE, 0, sizeof header + kSegments * sizeof(Elf64_Phdr), 0, 0,
                          notes.size(), 0, 4});
  append(core, Elf64_Phdr{PT_LOAD, PF_R | PF_X, begin, kProgram, 0, kPage, 2 * kPage, kPage});
  append(core, Elf64_Phdr{PT_LOAD, PF_R | PF_W, begin + kPage, kHeap, 0, kPage, kPage, kPage});
  append(core, Elf64_Phdr{PT_LOAD, PF_R | PF_W, begin + 2 * kPage, kLeftOut, 0, 0, kPage, kPage});
  append(core, Elf64_Phdr{PT_LOAD, PF_R | PF_W, begin + 2 * kPage, kStack, 0, kPage, kPage, kPage});
  core += notes;
  core.resize(begin);
  return core + make_program() + std::string(kPage, 'h') + std::string(kPage, 's');
}

std::unique_ptr<helper::CoreFile> open_core(const std::string& bytes) {
  int file = memfd_create("core", MFD_CLOEXEC);
  bool written = write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  std::unique_ptr<helper::CoreFile> core;
  try {
    if (written) core = std::make_unique<helper::CoreFile>("/proc/self/fd/" + std::to_string(file));
  } catch (...) {
    close(file);
    throw;
  }
  close(file);
  return core;
}

}  // namespace reachscan::tests
