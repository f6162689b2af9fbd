// Searches the dynamic sections of the modules for imported functions.
#include "helper/core/imports.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "helper/target/mappings.hpp"

namespace reachscan::helper {
namespace {

constexpr std::uint64_t kMaxEntries = 1 << 10;
constexpr std::uint64_t kMaxSymbols = 1 << 20;
constexpr std::uint64_t kMaxTextBytes = 64u << 20;

// Where the tables of a module's dynamic symbols are.
struct Tables {
  std::uint64_t symbols = 0;
  std::uint64_t text = 0;
  std::uint64_t text_bytes = 0;
  bool names_libraries = false;
  bool of_program = false;  // one that may be loaded anywhere

  // A static program contains all its functions and need not list imports.
  bool lists_imports() const {
    return symbols != 0 && text > symbols && text_bytes <= kMaxTextBytes &&
           (names_libraries || !of_program);
  }
};

void take(const Elf64_Dyn& entry, const Module& module, Tables& tables) {
  // The loader has made these addresses absolute, but not in every C library, nor in the vdso.
  std::uint64_t address = entry.d_un.d_ptr;
  if (address < module.start) address += module.image.bias(module.start);
  if (entry.d_tag == DT_NEEDED) tables.names_libraries = true;
  if (entry.d_tag == DT_FLAGS_1) tables.of_program = (entry.d_un.d_val & DF_1_PIE) != 0;
  if (entry.d_tag == DT_SYMTAB) tables.symbols = address;
  if (entry.d_tag == DT_STRTAB) tables.text = address;
  if (entry.d_tag == DT_STRSZ) tables.text_bytes = entry.d_un.d_val;
}

Tables find_tables(const Module& module, const ReadAt& read_memory) {
  Tables tables;
  for (const Elf64_Phdr& segment : module.image.segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    std::vector<Elf64_Dyn> entries(
        std::min<std::uint64_t>(segment.p_memsz / sizeof(Elf64_Dyn), kMaxEntries));
    std::uint64_t start = module.image.bias(module.start) + segment.p_vaddr;
    if (!read_memory(start, entries.data(), entries.size() * sizeof entries[0])) continue;
    for (const Elf64_Dyn& entry : entries) {
      if (entry.d_tag == DT_NULL) break;
      take(entry, module, tables);
    }
  }
  return tables;
}

// The number of symbols is not recorded, but linkers put the names after them.
bool add_imports(const Module& module, const ReadAt& read_memory,
                 const std::set<std::string>& wanted, std::set<std::string>& names) {
  Tables tables = find_tables(module, read_memory);
  if (!tables.lists_imports()) return false;
  std::uint64_t count = (tables.text - tables.symbols) / sizeof(Elf64_Sym);
  if (count > kMaxSymbols) return false;
  std::vector<Elf64_Sym> symbols(count);
  std::string text(tables.text_bytes, '\0');
  if (!read_memory(tables.symbols, symbols.data(), count * sizeof symbols[0]) ||
      !read_memory(tables.text, text.data(), text.size()))
    return false;
  for (const Elf64_Sym& symbol : symbols) {
    if (symbol.st_shndx != SHN_UNDEF || symbol.st_name >= text.size()) continue;
    auto name = wanted.find(text.c_str() + symbol.st_name);
    if (name != wanted.end()) names.insert(*name);
  }
  return true;
}

}  // namespace

Imports find_imports(const std::vector<MapEntry>& entries, const ResidentPages& resident_pages,
                     const Memory& memory, const std::set<std::string>& wanted) {
  Imports imports;
  ReadAt read_memory = [&](std::uint64_t address, void* buffer, std::size_t length) {
    return resident_pages.may_touch(address, length) && memory.try_read(address, buffer, length);
  };
  for (const Module& module : find_modules(entries, resident_pages, memory))
    if (!add_imports(module, read_memory, wanted, imports.names)) imports.complete = false;
  return imports;
}

}  // namespace reachscan::helper
