// Reconstructs the mappings of a process from segments, notes and the mapped files.
#include "helper/core/core_mappings.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "arch/address_space.hpp"
#include "helper/target/elf_image.hpp"
#include "helper/target/memory_kinds.hpp"

namespace reachscan::helper {
namespace {

constexpr char kDeleted[] = " (deleted)";
// The kernel randomises the distance between the program and its break, up to this much.
constexpr std::uint64_t kLargestGapBeforeBreak = (1ull << 30) + (64ull << 20);

// Files are distinguished by path: a core file contains no inode numbers.
class FileNumbers {
 public:
  std::uint64_t of(const std::string& path) {
    return numbers_.emplace(path, numbers_.size() + 1).first->second;
  }

 private:
  std::map<std::string, std::uint64_t> numbers_;
};

std::string plain_path(std::string path) {
  if (path.ends_with(kDeleted)) path.resize(path.size() - (sizeof kDeleted - 1));
  return path;
}

// Shared memory looks like a file; whatever does not is private.
MapEntry entry_of(std::uint64_t start, std::uint64_t end, std::uint32_t perms,
                  const CoreMappedFile* file, FileNumbers& numbers) {
  MapEntry entry{start, end, 0, 0, "00:00", perms, {}, Backing::kNothing};
  if (file == nullptr || file->path == "/dev/zero") return entry;
  entry.offset = file->offset + (start - file->start);
  entry.inode = numbers.of(file->path);
  entry.device = "core";
  entry.path = file->path;
  entry.backing = Backing::kFile;
  bool of_device = starts_with(entry.path, "/dev/") && !starts_with(entry.path, "/dev/shm/");
  bool of_kernel = starts_with(entry.path, "anon_inode:") && !is_ring(entry);
  if (of_kernel || (of_device && is_file(entry))) {
    entry.backing = Backing::kDevice;
  } else if (!is_file(entry)) {
    entry.backing = Backing::kSharedMemory;
    // Private huge pages have the same name as shared ones, and may hold heaps.
    if (!starts_with(entry.path, "/anon_hugepage")) entry.perms |= wire::kShared;
  }
  return entry;
}

void add_segment(const CoreSegment& segment, const std::vector<CoreMappedFile>& files,
                 FileNumbers& numbers, std::vector<CoreMapping>& all) {
  auto file =
      std::upper_bound(files.begin(), files.end(), segment.start,
                       [](std::uint64_t at, const CoreMappedFile& f) { return at < f.end; });
  for (std::uint64_t at = segment.start; at < segment.end;) {
    bool within = file != files.end() && file->start <= at;
    std::uint64_t end = segment.end;
    if (file != files.end()) end = std::min(end, within ? file->end : file->start);
    std::uint64_t done = at - segment.start;
    std::uint64_t held = segment.bytes > done ? std::min(segment.bytes - done, end - at) : 0;
    all.push_back({entry_of(at, end, segment.perms, within ? &*file : nullptr, numbers), held,
                   segment.offset + done, nullptr, false, true});
    if (within && end == file->end) ++file;
    at = end;
  }
}

// A core file does not tell whether a memfd is shared: it is unless a program or library was loaded
// from it.
void tell_shared_memory(const CoreFile& core, std::vector<CoreMapping>& all) {
  std::set<std::uint64_t> loaded;
  for (const CoreMapping& mapping : all) {
    char magic[SELFMAG];
    if (mapping.entry.offset == 0 && core.try_read(mapping.entry.start, magic, sizeof magic) &&
        std::memcmp(magic, ELFMAG, sizeof magic) == 0)
      loaded.insert(mapping.entry.inode);
  }
  for (CoreMapping& mapping : all) {
    MapEntry& entry = mapping.entry;
    if (!starts_with(entry.path, "/memfd:") || loaded.contains(entry.inode)) continue;
    entry.backing = Backing::kSharedMemory;
    entry.perms |= wire::kShared;
  }
}

// gcore omits such mappings entirely.
void add_unlisted_files(const CoreFile& core, FileNumbers& numbers, std::vector<CoreMapping>& all) {
  std::vector<AddressRange> listed;
  for (const CoreSegment& segment : core.segments()) listed.push_back({segment.start, segment.end});
  for (const CoreMappedFile& file : core.files())
    for (const AddressRange& part : subtract({{file.start, file.end}}, listed))
      all.push_back({entry_of(part.start, part.end, wire::kRead, &file, numbers), 0, 0, nullptr,
                     false, false});
}

// Returns the permissions of a part of an image; what no segment covers may only be read.
std::uint32_t permissions_at(const ElfImage& image, std::uint64_t offset) {
  for (const Elf64_Phdr& segment : image.segments) {
    if (segment.p_type != PT_LOAD || offset < (segment.p_offset & ~(arch::kPage - 1)) ||
        offset >= segment.p_offset + segment.p_filesz)
      continue;
    return permissions(segment.p_flags);
  }
  return wire::kRead;
}

// Finds the files of programs and libraries, and what is mapped of each.
class Modules {
 public:
  Modules(const CoreFile& core, OriginalFiles& originals, CoreMappings& mappings)
      : core_(core), originals_(originals), mappings_(mappings) {}

  // The mappings of a file are in order, but other files may be mapped between two mappings of it,
  // and unnamed memory between its parts.
  void find() {
    for (const CoreMapping& mapping : mappings_.all)
      if (is_file(mapping.entry) && mapping.entry.offset == 0) examine_module(mapping.entry);
    for (CoreMapping& mapping : mappings_.all) {
      if (!is_file(mapping.entry)) continue;
      auto module = modules_.find(mapping.entry.inode);
      if (module == modules_.end()) {
        mapping.original = unchanged_file(mapping.entry);
        continue;
      }
      mapping.of_module = true;
      mapping.original = module->second.original;
      if (!mapping.perms_known)
        mapping.entry.perms = permissions_at(module->second.image, mapping.entry.offset);
    }
  }

  // Returns the end of the module that a mapping belongs to; no limit if it belongs to none.
  std::uint64_t end_of(const MapEntry& entry) const {
    auto module = modules_.find(entry.inode);
    return module == modules_.end() ? arch::kUserEnd
                                    : module->second.image.end_at(module->second.start);
  }

  bool needs_no_loader(const MapEntry& entry) const {
    auto module = modules_.find(entry.inode);
    if (module == modules_.end() || module->second.image.fixed) return false;
    const std::vector<Elf64_Phdr>& segments = module->second.image.segments;
    return std::none_of(segments.begin(), segments.end(),
                        [](const Elf64_Phdr& segment) { return segment.p_type == PT_INTERP; });
  }

 private:
  struct Module {
    std::uint64_t start;
    ElfImage image;
    const OriginalFile* original;
  };

  // The start is in the core file, so its build id can be compared.
  void examine_module(const MapEntry& entry) {
    if (modules_.contains(entry.inode)) return;
    ReadAt dumped = [&](std::uint64_t offset, void* buffer, std::size_t length) {
      return core_.try_read(entry.start + offset, buffer, length);
    };
    ElfImage image = read_elf_image(dumped);
    const OriginalFile* file = originals_.find(plain_path(entry.path));
    if (image.valid) {
      std::string id = build_id_of(image, dumped);
      bool same = file != nullptr && !id.empty() &&
                  build_id_of(read_elf_image(file->reader()), file->reader()) == id;
      if (!same) mappings_.missing_modules.push_back(entry.path);
      modules_.emplace(entry.inode, Module{entry.start, image, same ? file : nullptr});
    } else if (file != nullptr && read_elf_image(file->reader()).valid) {
      // It may be that file, but nothing proves it.
      mappings_.missing_modules.push_back(entry.path);
      modules_.emplace(entry.inode, Module{entry.start, read_elf_image(file->reader()), nullptr});
    }
  }

  // Returns a data file unless it was written to later.
  const OriginalFile* unchanged_file(const MapEntry& entry) {
    const OriginalFile* file = originals_.find(entry.path);
    return file != nullptr && file->modified() <= core_.written() ? file : nullptr;
  }

  const CoreFile& core_;
  OriginalFiles& originals_;
  CoreMappings& mappings_;
  std::map<std::uint64_t, Module> modules_;  // by the number of the file
};

MapEntry* entry_around(std::vector<CoreMapping>& all, std::uint64_t address) {
  for (CoreMapping& mapping : all)
    if (address >= mapping.entry.start && address < mapping.entry.end) return &mapping.entry;
  return nullptr;
}

void name_memory_at(std::vector<CoreMapping>& all, std::uint64_t address, const char* name) {
  MapEntry* entry = address == 0 ? nullptr : entry_around(all, address);
  if (entry != nullptr && entry->inode == 0) entry->path = name;
}

// Names the first unnamed memory after `base`. Returns false if there is none nearby.
bool name_program_break(std::vector<CoreMapping>& all, std::uint64_t base) {
  std::uint64_t end = 0;  // of what was named
  for (CoreMapping& mapping : all) {
    MapEntry& entry = mapping.entry;
    bool is_first = end == 0 && entry.end > base && entry.inode == 0 &&
                    entry.start <= base + kLargestGapBeforeBreak &&
                    (entry.perms & wire::kWrite) != 0;
    if (!is_first && (end == 0 || entry.start != end || entry.inode != 0)) continue;
    if (!entry.path.empty()) break;
    entry.path = "[heap]";
    end = entry.end;
  }
  return end != 0;
}

}  // namespace

CoreMappings mappings_of(const CoreFile& core, OriginalFiles& originals) {
  CoreMappings found;
  FileNumbers numbers;
  for (const CoreSegment& segment : core.segments())
    add_segment(segment, core.files(), numbers, found.all);
  add_unlisted_files(core, numbers, found.all);
  std::sort(found.all.begin(), found.all.end(), [](const CoreMapping& a, const CoreMapping& b) {
    return a.entry.start < b.entry.start;
  });
  tell_shared_memory(core, found.all);
  Modules modules(core, originals, found);
  modules.find();
  name_memory_at(found.all, core.auxiliary(AT_SYSINFO_EHDR), "[vdso]");
  name_memory_at(found.all, core.auxiliary(AT_RANDOM), "[stack]");
  if (MapEntry* program = entry_around(found.all, core.auxiliary(AT_ENTRY))) {
    found.program = plain_path(program->path);
    // A program that needs no loader, such as the loader itself, is loaded where libraries are.
    bool apart =
        modules.needs_no_loader(*program) && name_program_break(found.all, arch::kBreakOfLoader);
    if (!apart) name_program_break(found.all, modules.end_of(*program));
  }
  return found;
}

}  // namespace reachscan::helper
