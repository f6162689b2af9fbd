// Programs and libraries as the loader lists them, read in memory: no call into the loader, whose
// locks an allocating thread may hold.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

// The loader's list, as glibc and musl export it for debuggers.
#pragma weak _r_debug
extern "C" const r_debug* _dl_debug_addr __attribute__((weak));

// The start and end of this library's image, defined by the linker.
extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" const char _etext[] __attribute__((visibility("hidden")));

namespace reachscan::recorder {

inline std::uint64_t own_base() { return reinterpret_cast<std::uint64_t>(__ehdr_start); }

inline bool is_own_code(std::uint64_t address) {
  return address - own_base() < static_cast<std::uint64_t>(_etext - __ehdr_start);
}

inline bool same_text(const char* left, const char* right) {
  while (*left != 0 && *left == *right) ++left, ++right;
  return *left == *right;
}

struct Extent {
  bool contains(std::uint64_t address) const { return address - start < bytes; }

  std::uint64_t start = 0;
  std::uint64_t bytes = 0;
};

struct Image {
  std::uint64_t bias = 0;  // run-time address minus the address in the file
  const Elf64_Phdr* headers = nullptr;
  std::size_t header_count = 0;
  Extent frames = {};  // .eh_frame, if no header leads to it

  // Calls visit(header) for each program header of this type.
  template <typename Visit>
  void each(std::uint32_t type, Visit visit) const {
    for (std::size_t i = 0; i < header_count; ++i)
      if (headers[i].p_type == type) visit(headers[i]);
  }

  // The addresses that its segments occupy.
  Extent extent() const {
    std::uint64_t start = ~std::uint64_t{0}, end = 0;
    each(PT_LOAD, [&](const Elf64_Phdr& header) {
      std::uint64_t begin = bias + header.p_vaddr;
      if (begin < start) start = begin;
      if (begin + header.p_memsz > end) end = begin + header.p_memsz;
    });
    return end == 0 ? Extent{} : Extent{start, end - start};
  }

  std::uint64_t first(std::uint32_t type) const {
    std::uint64_t found = 0;
    each(type, [&](const Elf64_Phdr& header) {
      if (found == 0) found = bias + header.p_vaddr;
    });
    return found;
  }
};

// Reads the image whose first segment, with the ELF header in it, starts at `base`.
inline bool image_at(std::uint64_t base, Image& image) {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(base);
  if (__builtin_memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return false;
  image = {base, reinterpret_cast<const Elf64_Phdr*>(base + header->e_phoff), header->e_phnum, {}};
  return true;
}

// Returns the image of the program: the kernel says where its headers are.
inline Image program_image(std::uint64_t headers, std::size_t count) {
  Image image{0, reinterpret_cast<const Elf64_Phdr*>(headers), count, {}};
  image.each(PT_PHDR, [&](const Elf64_Phdr& own) { image.bias = headers - own.p_vaddr; });
  return image;
}

// The exported symbols of an image.
class Symbols {
 public:
  // The loader has turned addresses into absolute ones, except in images that it did not load (the
  // vdso).
  explicit Symbols(const Image& image) : bias_(image.bias) {
    const auto* entry = reinterpret_cast<const Elf64_Dyn*>(image.first(PT_DYNAMIC));
    if (entry == nullptr) return;
    for (; entry->d_tag != DT_NULL; ++entry) {
      std::uint64_t value = entry->d_un.d_ptr;
      std::uint64_t address = value < image.bias ? value + image.bias : value;
      if (entry->d_tag == DT_SYMTAB) symbols_ = reinterpret_cast<const Elf64_Sym*>(address);
      if (entry->d_tag == DT_STRTAB) strings_ = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_GNU_HASH) gnu_hash_ = reinterpret_cast<const std::uint32_t*>(address);
      if (entry->d_tag == DT_HASH) hash_ = reinterpret_cast<const std::uint32_t*>(address);
      if (entry->d_tag == DT_VERSYM) versions_ = reinterpret_cast<const std::uint16_t*>(address);
    }
  }

  // Returns the address of the function of that name, in its default version; 0 if there is none.
  std::uint64_t find(const char* name, unsigned type = STT_FUNC) const {
    return extent(name, type).start;
  }

  Extent extent(const char* name, unsigned type = STT_FUNC) const {
    Extent found;
    each(name, [&](const Elf64_Sym& symbol, bool is_default) {
      if (found.start == 0 && is_default && ELF64_ST_TYPE(symbol.st_info) == type)
        found = {bias_ + symbol.st_value, symbol.st_size};
    });
    return found;
  }

  // Calls visit(symbol, is_default_version) for each definition of this name.
  template <typename Visit>
  void each(const char* name, Visit visit) const {
    if (symbols_ == nullptr || strings_ == nullptr) return;
    if (gnu_hash_ != nullptr) {
      each_by_gnu_hash(name, visit);
    } else if (hash_ != nullptr) {
      for (std::uint32_t i = 1; i < hash_[1]; ++i) visit_if_named(i, name, visit);
    }
  }

 private:
  template <typename Visit>
  void each_by_gnu_hash(const char* name, Visit visit) const {
    std::uint32_t hash = 5381;
    for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    std::uint32_t bucket_count = gnu_hash_[0], first = gnu_hash_[1];
    if (bucket_count == 0) return;
    const std::uint32_t* buckets = gnu_hash_ + 4 + 2 * gnu_hash_[2];
    const std::uint32_t* chain = buckets + bucket_count;
    for (std::uint32_t i = buckets[hash % bucket_count]; i >= first; ++i) {
      std::uint32_t link = chain[i - first];
      if ((link | 1) == (hash | 1)) visit_if_named(i, name, visit);
      if ((link & 1) != 0) break;
    }
  }

  template <typename Visit>
  void visit_if_named(std::uint32_t i, const char* name, Visit visit) const {
    constexpr std::uint16_t kOldVersion = 0x8000;
    if (symbols_[i].st_shndx != SHN_UNDEF && same_text(strings_ + symbols_[i].st_name, name))
      visit(symbols_[i], versions_ == nullptr || (versions_[i] & kOldVersion) == 0);
  }

  std::uint64_t bias_;
  const Elf64_Sym* symbols_ = nullptr;
  const char* strings_ = nullptr;
  const std::uint32_t* gnu_hash_ = nullptr;
  const std::uint32_t* hash_ = nullptr;
  const std::uint16_t* versions_ = nullptr;
};

// The list of what the loader has loaded.
class LinkMap {
 public:
  LinkMap() = default;

  explicit LinkMap(const Image& program) : program_(program) {
    if (&_r_debug != nullptr) {
      debug_ = &_r_debug;
    } else if (&_dl_debug_addr != nullptr) {
      debug_ = _dl_debug_addr;
    }
  }

  // Uses the address of the list that the loader has stored in the program.
  static LinkMap told_to(const Image& program) {
    LinkMap link_map;
    link_map.program_ = program;
    const auto* entry = reinterpret_cast<const Elf64_Dyn*>(program.first(PT_DYNAMIC));
    for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == DT_DEBUG)
        link_map.debug_ = reinterpret_cast<const r_debug*>(entry->d_un.d_ptr);
    return link_map;
  }

  // For static programs: the list contains only the program.
  static LinkMap of_static(const Image& program) {
    LinkMap link_map;
    link_map.program_ = program;
    link_map.is_static_ = true;
    return link_map;
  }

  bool is_known() const { return is_static_ || debug_ != nullptr; }

  // While the loader changes the list, some entries are incomplete.
  bool is_settled() const {
    return is_static_ ||
           __atomic_load_n(&debug_->r_state, __ATOMIC_ACQUIRE) == r_debug::RT_CONSISTENT;
  }

  const Image& program() const { return program_; }

  // The list without the program.
  const link_map* after_program() const { return is_static_ ? nullptr : debug_->r_map->l_next; }

  // The loader itself; empty if there is none.
  Extent loader() const {
    Image image;
    bool is_there = !is_static_ && debug_->r_ldbase != 0 && image_at(debug_->r_ldbase, image);
    return is_there ? image.extent() : Extent{};
  }

  // Calls visit(image) in symbol lookup order. Only for times when no module can be closed.
  template <typename Visit>
  void each(Visit visit) const {
    until([&visit](const Image& image) { return visit(image), false; });
  }

  // The same, until visit(image) returns true. What is loaded with the program stands first, and is
  // never closed.
  template <typename Visit>
  void until(Visit visit) const {
    if (visit(program_)) return;
    for (const link_map* entry = after_program(); entry != nullptr; entry = entry->l_next) {
      Image image;
      if (entry->l_addr != 0 && image_at(entry->l_addr, image) && visit(image)) return;
    }
  }

 private:
  Image program_;
  const r_debug* debug_ = nullptr;
  bool is_static_ = false;
};

}  // namespace reachscan::recorder
