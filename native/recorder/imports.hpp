// The functions of other images that an image calls or points to.
#pragma once

#include "arch/imports.hpp"
#include "recorder/images.hpp"
#include "recorder/injection.hpp"

namespace reachscan::recorder {

class Imports {
 public:
  explicit Imports(const Image& image) : image_(image) {
    const auto* entry = reinterpret_cast<const Elf64_Dyn*>(image.first(PT_DYNAMIC));
    for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) take(*entry);
  }

  // Calls visit(use, address of the word, name of the function). Skips relative relocations, which
  // come first.
  template <typename Visit>
  void each(Visit visit) const {
    if (symbols_ == nullptr || strings_ == nullptr) return;
    visit_table(relocations_, relocation_count_, relative_count_, visit);
    visit_table(calls_, call_count_, 0, visit);
  }

 private:
  void take(const Elf64_Dyn& entry) {
    std::uint64_t value = entry.d_un.d_val;
    // glibc's loader has turned addresses into absolute ones, that of musl has not.
    std::uint64_t address = value < image_.bias ? value + image_.bias : value;
    if (entry.d_tag == DT_RELA) relocations_ = reinterpret_cast<const Elf64_Rela*>(address);
    if (entry.d_tag == DT_RELASZ) relocation_count_ = value / sizeof(Elf64_Rela);
    if (entry.d_tag == DT_RELACOUNT) relative_count_ = value;
    if (entry.d_tag == DT_JMPREL) calls_ = reinterpret_cast<const Elf64_Rela*>(address);
    if (entry.d_tag == DT_PLTRELSZ) call_count_ = value / sizeof(Elf64_Rela);
    if (entry.d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const Elf64_Sym*>(address);
    if (entry.d_tag == DT_STRTAB) strings_ = reinterpret_cast<const char*>(address);
  }

  template <typename Visit>
  void visit_table(const Elf64_Rela* table, std::uint64_t count, std::uint64_t first,
                   Visit visit) const {
    if (table == nullptr) return;
    for (std::uint64_t i = first; i < count; ++i) {
      SlotUse use = use_of(table[i]);
      std::uint64_t address = image_.bias + table[i].r_offset;
      if (use == SlotUse::kNone || address % sizeof(std::uint64_t) != 0) continue;
      visit(use, address, strings_ + symbols_[ELF64_R_SYM(table[i].r_info)].st_name);
    }
  }

  static SlotUse use_of(const Elf64_Rela& relocation) {
    auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(relocation.r_info));
    if (ELF64_R_SYM(relocation.r_info) == 0 || relocation.r_addend != 0) return SlotUse::kNone;
    if (arch::imports_call(type)) return SlotUse::kCall;
    return arch::imports_pointer(type) ? SlotUse::kPointer : SlotUse::kNone;
  }

  const Image& image_;
  const Elf64_Rela* relocations_ = nullptr;
  const Elf64_Rela* calls_ = nullptr;
  std::uint64_t relocation_count_ = 0;
  std::uint64_t relative_count_ = 0;
  std::uint64_t call_count_ = 0;
  const Elf64_Sym* symbols_ = nullptr;
  const char* strings_ = nullptr;
};

}  // namespace reachscan::recorder
