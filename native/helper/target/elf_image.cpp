// Reads program headers and the build id of an ELF image.
#include "helper/target/elf_image.hpp"

#include <algorithm>
#include <cstring>

#include "arch/address_space.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;

constexpr std::size_t kMaxNotes = 1 << 16;
constexpr unsigned kMaxSegments = 64;

std::string build_id_in(const std::vector<unsigned char>& notes) {
  for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data() + at, sizeof note);
    std::size_t name = at + sizeof note;
    std::size_t value = name + ((std::size_t{note.n_namesz} + 3) & ~std::size_t{3});
    std::size_t next = value + ((std::size_t{note.n_descsz} + 3) & ~std::size_t{3});
    if (next > notes.size()) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
        std::memcmp(notes.data() + name, "GNU", 4) == 0)
      return std::string(reinterpret_cast<const char*>(notes.data()) + value, note.n_descsz);
    at = next;
  }
  return {};
}

template <typename Ehdr, typename Phdr>
ElfImage read_image_of(const ReadAt& read) {
  ElfImage image;
  Ehdr header{};
  if (!read(0, &header, sizeof header) || header.e_phnum > kMaxSegments) return image;
  std::vector<Phdr> segments(header.e_phnum);
  image.fixed = header.e_type == ET_EXEC;
  image.valid = read(header.e_phoff, segments.data(), segments.size() * sizeof(Phdr));
  for (const Phdr& segment : segments)
    image.segments.push_back({segment.p_type, segment.p_flags, segment.p_offset, segment.p_vaddr,
                              segment.p_paddr, segment.p_filesz, segment.p_memsz, segment.p_align});
  return image;
}

std::uint64_t page_of(std::uint64_t address) { return address & ~(kPage - 1); }

}  // namespace

std::uint64_t ElfImage::end_at(std::uint64_t start) const {
  std::uint64_t end = 0;
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type == PT_LOAD) end = std::max(end, segment.p_vaddr + segment.p_memsz);
  return page_of(bias(start) + end + kPage - 1);
}

std::uint64_t ElfImage::loaded_until(std::uint64_t start, std::uint64_t address) const {
  for (const Elf64_Phdr& segment : segments) {  // in the order of their addresses
    if (segment.p_type != PT_LOAD) continue;
    std::uint64_t begin = bias(start) + segment.p_vaddr;
    if (address < page_of(begin)) break;
    address = std::max(address, page_of(begin + segment.p_memsz + kPage - 1));
  }
  return address;
}

ElfImage read_elf_image(const ReadAt& read) {
  unsigned char ident[EI_NIDENT] = {};
  if (!read(0, ident, sizeof ident) || std::memcmp(ident, ELFMAG, SELFMAG) != 0) return {};
  if (ident[EI_CLASS] == ELFCLASS64) return read_image_of<Elf64_Ehdr, Elf64_Phdr>(read);
  if (ident[EI_CLASS] == ELFCLASS32) return read_image_of<Elf32_Ehdr, Elf32_Phdr>(read);
  return {};
}

std::string build_id_of(const ElfImage& image, const ReadAt& read) {
  for (const Elf64_Phdr& segment : image.segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNotes) continue;
    std::vector<unsigned char> notes(segment.p_filesz);
    if (!read(segment.p_offset, notes.data(), notes.size())) continue;
    std::string id = build_id_in(notes);
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace reachscan::helper
