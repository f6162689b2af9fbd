// Reads sections and symbols of the program's file, and machine code from its memory.
#include "helper/recording/static_program.hpp"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "helper/recording/session.hpp"
#include "helper/stop/preconditions.hpp"
#include "helper/target/elf_image.hpp"
#include "helper/target/process.hpp"

namespace reachscan::helper {
namespace {

constexpr std::uint64_t kByteLimit = 256u << 20;  // of a table

class File {
 public:
  explicit File(pid_t pid)
      : descriptor_(open(("/proc/" + std::to_string(pid) + "/exe").c_str(), O_RDONLY | O_CLOEXEC)) {
  }
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  ReadAt reader() const {
    return [this](std::uint64_t offset, void* buffer, std::size_t length) {
      return pread(descriptor_, buffer, length, static_cast<off_t>(offset)) ==
             static_cast<ssize_t>(length);
    };
  }

  // Returns nothing if they cannot be read completely.
  template <typename Row>
  std::vector<Row> rows(std::uint64_t offset, std::uint64_t bytes) const {
    std::vector<Row> all(bytes <= kByteLimit ? bytes / sizeof(Row) : 0);
    if (!reader()(offset, all.data(), all.size() * sizeof(Row))) all.clear();
    return all;
  }

 private:
  int descriptor_;
};

struct Sections {
  explicit Sections(const File& file) : file(file) {
    if (!file.reader()(0, &header, sizeof header)) return;
    all = file.rows<Elf64_Shdr>(header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
    names = text_of(header.e_shstrndx);
  }

  std::vector<char> text_of(std::uint64_t i) const {
    std::vector<char> text;
    if (i < all.size()) text = file.rows<char>(all[i].sh_offset, all[i].sh_size);
    text.push_back(0);
    return text;
  }

  const Elf64_Shdr* find(std::uint32_t type, const char* name) const {
    for (const Elf64_Shdr& section : all)
      if (section.sh_type == type && section.sh_name < names.size() &&
          std::strcmp(&names[section.sh_name], name) == 0)
        return &section;
    return nullptr;
  }

  const File& file;
  Elf64_Ehdr header{};
  std::vector<Elf64_Shdr> all;
  std::vector<char> names;
};

bool is_local(const Elf64_Sym& symbol) { return ELF64_ST_BIND(symbol.st_info) == STB_LOCAL; }

using SymbolsOfHooks = std::array<std::vector<Elf64_Sym>, recorder::kHookedCount>;

// Linkers make internal functions local. If several local functions have the name, it is unknown
// which one is meant.
SymbolsOfHooks find_symbols(const Sections& sections) {
  SymbolsOfHooks found;
  const Elf64_Shdr* table = sections.find(SHT_SYMTAB, ".symtab");
  if (table == nullptr) return found;
  std::vector<char> text = sections.text_of(table->sh_link);
  for (const Elf64_Sym& symbol : sections.file.rows<Elf64_Sym>(table->sh_offset, table->sh_size)) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_name >= text.size() ||
        symbol.st_shndx == SHN_UNDEF)
      continue;
    std::uint32_t hook = hook_named(&text[symbol.st_name]);
    if (hook < recorder::kHookedCount) found[hook].push_back(symbol);
  }
  for (std::vector<Elf64_Sym>& symbols : found)
    if (symbols.size() > 1) std::erase_if(symbols, is_local);
  return found;
}

std::vector<TargetFunction> find_functions(const Sections& sections, std::uint64_t bias,
                                           const Memory& memory) {
  std::vector<TargetFunction> functions;
  SymbolsOfHooks symbols = find_symbols(sections);
  for (std::uint32_t hook = 0; hook < recorder::kHookedCount; ++hook)
    for (const Elf64_Sym& symbol : symbols[hook])
      functions.emplace_back(hook, bias + symbol.st_value, symbol.st_size, memory);
  return functions;
}

[[noreturn]] void refuse(pid_t pid, const std::string& why) {
  throw Failure(wire::Step::kOpenTarget, Code::kUnrecordable, name_of(pid) + " " + why, 0, pid);
}

// Returns whether it has a library name, like the loader itself, which can be started as a program.
bool has_soname(const Sections& sections) {
  const Elf64_Shdr* section = sections.find(SHT_DYNAMIC, ".dynamic");
  if (section == nullptr) return false;
  auto entries = sections.file.rows<Elf64_Dyn>(section->sh_offset, section->sh_size);
  return std::any_of(entries.begin(), entries.end(),
                     [](const Elf64_Dyn& entry) { return entry.d_tag == DT_SONAME; });
}

}  // namespace

std::optional<StaticProgram> find_static_program(pid_t pid, const Memory& memory) {
  File file(pid);
  ElfImage image = read_elf_image(file.reader());
  auto is_interpreter = [](const Elf64_Phdr& segment) { return segment.p_type == PT_INTERP; };
  if (!image.valid || std::any_of(image.segments.begin(), image.segments.end(), is_interpreter))
    return std::nullopt;
  Sections sections(file);
  if (has_soname(sections))
    refuse(pid, "was started through its loader, and is not known apart from that");
  StaticProgram program;
  program.bias = auxiliary(pid, AT_ENTRY) - sections.header.e_entry;
  program.functions = find_functions(sections, program.bias, memory);
  auto is_there = [&](const char* name) {
    std::uint32_t hook = hook_named(name);
    return std::any_of(program.functions.begin(), program.functions.end(),
                       [&](const TargetFunction& function) { return function.hook == hook; });
  };
  if (sections.find(SHT_SYMTAB, ".symtab") == nullptr)
    refuse(pid, "is linked statically and has no symbols: nothing tells where its allocator is");
  if (!is_there("malloc") || !is_there("free"))
    refuse(pid, "is linked statically, without a malloc() or free() that could be recorded");
  if (const Elf64_Shdr* tables = sections.find(SHT_PROGBITS, ".eh_frame"))
    program.unwind_tables = {program.bias + tables->sh_addr, tables->sh_size};
  return program;
}

}  // namespace reachscan::helper
