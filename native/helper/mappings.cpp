#include "helper/mappings.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

namespace reachscan::helper {
namespace {

using abi::MappingFlag;

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

bool is_kernel_owned(const std::string& path) {
  return path == "[vdso]" || starts_with(path, "[vvar") || path == "[vsyscall]";
}

// Memory of a device may have no pages behind it, or react to being read.
bool is_device(const std::string& path) {
  return (starts_with(path, "/dev/") && !starts_with(path, "/dev/shm/") && path != "/dev/zero" &&
          path != "/dev/zero (deleted)") ||
         starts_with(path, "anon_inode:");
}

// A mapped file that is not an anonymous object of the kernel dressed as one.
bool is_file(const MapEntry& entry) {
  return entry.inode != 0 && starts_with(entry.path, "/") &&
         !starts_with(entry.path, "/anon_hugepage") && !starts_with(entry.path, "/memfd:") &&
         !starts_with(entry.path, "/SYSV") && !starts_with(entry.path, "/dev/zero");
}

std::uint32_t own_flags(const MapEntry& entry) {
  std::uint32_t flags = 0;
  if (is_file(entry)) flags |= MappingFlag::kFileBacked;
  if (entry.path == "[stack]") flags |= MappingFlag::kMainStack;
  if (entry.path == "[heap]") flags |= MappingFlag::kProgramBreak;
  if (is_kernel_owned(entry.path)) flags |= MappingFlag::kKernelOwned;
  if (is_device(entry.path)) flags |= MappingFlag::kDevice;
  return flags;
}

bool same_file(const MapEntry& a, const MapEntry& b) {
  return a.inode == b.inode && a.device == b.device;
}

// The loader maps [relro][data] as one segment and then protects the front of it.
bool is_relro(const MapEntry& entry, const MapEntry& next) {
  return entry.perms == wire::kRead && next.perms == (wire::kRead | wire::kWrite) &&
         entry.end == next.start && is_file(entry) && same_file(entry, next);
}

bool is_bss(const MapEntry& entry, const MapEntry& previous, std::uint32_t previous_flags) {
  return entry.inode == 0 && entry.path.empty() && entry.start == previous.end &&
         (entry.perms & wire::kWrite) != 0 && (previous.perms & wire::kWrite) != 0 &&
         (previous_flags & MappingFlag::kFileBacked) != 0;
}

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

constexpr std::size_t kMaxNotes = 1 << 16;
constexpr unsigned kMaxSegments = 64;

// Empty if the image carries none. `is_elf` tells whether there is an image at all.
std::string read_build_id(const MapEntry& entry, const Memory& memory, bool& is_elf) {
  Elf64_Ehdr header{};
  is_elf = memory.try_read(entry.start, &header, sizeof header) &&
           std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
           header.e_ident[EI_CLASS] == ELFCLASS64;
  if (!is_elf || header.e_phnum > kMaxSegments) return {};
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!memory.try_read(entry.start + header.e_phoff, segments.data(),
                       segments.size() * sizeof(Elf64_Phdr)))
    return {};
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMaxNotes) continue;
    std::vector<unsigned char> notes(segment.p_filesz);
    if (!memory.try_read(entry.start + segment.p_offset, notes.data(), notes.size())) continue;
    std::string id = build_id_in(notes);
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace

std::vector<abi::Mapping> classify(const std::vector<MapEntry>& entries) {
  std::vector<abi::Mapping> mappings;
  std::map<std::pair<std::string, std::uint64_t>, std::uint32_t> files;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const MapEntry& entry = entries[i];
    std::uint32_t flags = own_flags(entry);
    if (i + 1 < entries.size() && is_relro(entry, entries[i + 1])) flags |= MappingFlag::kRelro;
    std::uint32_t file = 0;
    if ((flags & MappingFlag::kFileBacked) != 0) {
      auto key = std::make_pair(entry.device, entry.inode);
      file = files.emplace(key, static_cast<std::uint32_t>(files.size()) + 1).first->second;
    } else if (i > 0 && is_bss(entry, entries[i - 1], mappings.back().flags)) {
      flags |= MappingFlag::kFollowsFile;
      file = mappings.back().file;
    }
    mappings.push_back({entry.start, entry.end, entry.perms, flags, file, 0});
  }
  return mappings;
}

Payload mappings_record(const std::vector<MapEntry>& entries) {
  Payload payload;
  payload.u32(static_cast<std::uint32_t>(entries.size()));
  for (const MapEntry& entry : entries)
    payload.u64(entry.start)
        .u64(entry.end)
        .u64(entry.offset)
        .u64(entry.inode)
        .u32(entry.perms)
        .str(entry.path);
  return payload;
}

Payload modules_record(const std::vector<MapEntry>& entries, const Memory& memory) {
  Payload modules;
  std::uint32_t count = 0;
  for (const MapEntry& entry : entries) {
    bool is_elf = false;
    if (entry.offset != 0 || !is_file(entry) || (entry.perms & wire::kRead) == 0) continue;
    std::string id = read_build_id(entry, memory, is_elf);
    if (!is_elf) continue;
    modules.u64(entry.start).str(entry.path).str(id);
    ++count;
  }
  Payload payload;
  payload.u32(count).raw(modules.bytes().data(), modules.bytes().size());
  return payload;
}

}  // namespace reachscan::helper
