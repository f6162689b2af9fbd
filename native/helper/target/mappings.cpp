// Sets the flags of each mapping, and finds the images of modules and their build ids.
#include "helper/target/mappings.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "helper/target/memory_kinds.hpp"

namespace reachscan::helper {
namespace {

using abi::MappingFlag;

std::uint32_t own_flags(const MapEntry& entry) {
  std::uint32_t flags = 0;
  if (is_file(entry)) flags |= MappingFlag::kFileBacked;
  if (entry.path == "[stack]") flags |= MappingFlag::kMainStack;
  if (entry.path == "[heap]") flags |= MappingFlag::kProgramBreak;
  if (is_kernel_owned(entry)) flags |= MappingFlag::kKernelOwned;
  if (is_device(entry)) flags |= MappingFlag::kUntouchable;
  return flags;
}

// Memory except what must not be touched.
struct ImageMemory {
  const ResidentPages& resident_pages;
  const Memory& memory;

  ReadAt from(std::uint64_t start) const {
    return [this, start](std::uint64_t offset, void* buffer, std::size_t length) {
      return resident_pages.may_touch(start + offset, length) &&
             memory.try_read(start + offset, buffer, length);
    };
  }
};

// Reads the image that is mapped here, if there is one.
ElfImage read_image(const MapEntry& entry, const ImageMemory& memory) {
  if (entry.offset != 0 || !is_file(entry) || (entry.perms & wire::kRead) == 0) return {};
  return read_elf_image(memory.from(entry.start));
}

// Finds the images among mappings, which must be passed in order.
class ImageSearch {
 public:
  explicit ImageSearch(const ImageMemory& memory) : memory_(memory) {}

  // Returns the image that starts with this mapping, valid if there is one. The data of a small
  // library is in the first page of its file, which is then mapped twice within the same image.
  ElfImage begins_at(const MapEntry& entry) {
    bool within =
        entry.start < image_.end_at(start_) && entry.inode == inode_ && entry.device == device_;
    ElfImage image = within ? ElfImage{} : read_image(entry, memory_);
    if (!image.valid) return image;
    image_ = image;
    start_ = entry.start;
    inode_ = entry.inode;
    device_ = entry.device;
    return image;
  }

  // Returns the end of the adjacent segments around `address` in the last image found.
  std::uint64_t loaded_until(std::uint64_t address) const {
    return image_.loaded_until(start_, address);
  }

 private:
  const ImageMemory& memory_;
  ElfImage image_;
  std::uint64_t start_ = 0;
  std::uint64_t inode_ = 0;
  std::string device_;
};

// Splits ranges off into mappings of their own, which `mark` changes.
template <typename Mark>
std::vector<abi::Mapping> split(const std::vector<abi::Mapping>& mappings,
                                const std::vector<AddressRange>& stretches, Mark mark) {
  std::vector<abi::Mapping> parts;
  auto next = stretches.begin();
  for (abi::Mapping m : mappings) {
    while (next != stretches.end() && next->end <= m.start) ++next;
    for (; next != stretches.end() && next->start < m.end; ++next) {
      // A range may start in the preceding mapping (a .bss and what was joined to it).
      abi::Mapping part = m;
      part.start = std::max(next->start, m.start);
      part.end = std::min(next->end, m.end);
      if (part.start > m.start) parts.push_back({m.start, part.start, m.perms, m.flags, m.file, 0});
      mark(part);
      parts.push_back(part);
      m.start = part.end;
      if (next->end > m.end) break;
    }
    if (m.start < m.end) parts.push_back(m);
  }
  return parts;
}

// Returns whether it is anonymous memory directly after another mapping.
bool follows(const std::vector<MapEntry>& entries, std::size_t i) {
  return i > 0 && entries[i - 1].end == entries[i].start && is_anonymous(entries[i]);
}

}  // namespace

std::vector<std::uint64_t> find_bss_ends(const std::vector<MapEntry>& entries,
                                         const ResidentPages& resident_pages,
                                         const Memory& memory) {
  std::vector<std::uint64_t> ends;
  ImageMemory touchable{resident_pages, memory};
  ImageSearch images(touchable);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const MapEntry& entry = entries[i];
    images.begins_at(entry);
    std::uint64_t end = follows(entries, i) ? images.loaded_until(entry.start) : entry.start;
    ends.push_back(std::min(entry.end, end));
  }
  return ends;
}

std::vector<abi::Mapping> classify(const std::vector<MapEntry>& entries,
                                   const std::vector<std::uint64_t>& bss_ends,
                                   const ResidentPages& resident_pages) {
  std::vector<abi::Mapping> mappings;
  std::map<std::pair<std::string, std::uint64_t>, std::uint32_t> files;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const MapEntry& entry = entries[i];
    std::uint32_t flags = own_flags(entry);
    std::uint32_t file = 0;
    if ((flags & MappingFlag::kFileBacked) != 0) {
      auto key = std::make_pair(entry.device, entry.inode);
      file = files.emplace(key, static_cast<std::uint32_t>(files.size()) + 1).first->second;
    }
    std::uint64_t start = bss_ends[i];
    if (start > entry.start)
      mappings.push_back({entry.start, start, entry.perms, flags | MappingFlag::kFollowsFile,
                          mappings.back().file, 0});
    if (start < entry.end) mappings.push_back({start, entry.end, entry.perms, flags, file, 0});
  }
  mappings = split(mappings, resident_pages.absent,
                   [](abi::Mapping& m) { m.flags |= MappingFlag::kAbsent; });
  mappings = split(mappings, resident_pages.untouchable, [](abi::Mapping& m) {
    m.flags |= MappingFlag::kAbsent | MappingFlag::kUntouchable;
  });
  return split(mappings, resident_pages.protected_, [](abi::Mapping& m) {
    m.flags |= MappingFlag::kProtected;
    m.perms |= wire::kRead;
  });
}

Payload mappings_record(const std::vector<MapEntry>& entries,
                        const std::vector<std::uint64_t>& bss_ends) {
  Payload rows;
  std::uint32_t count = 0;
  auto add = [&](std::uint64_t start, const MapEntry& entry, std::uint64_t end, std::uint32_t perms,
                 const std::string& path) {
    if (start == end) return;
    rows.u64(start).u64(end).u64(entry.offset).u64(entry.inode).u32(perms).str(path);
    ++count;
  };
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const MapEntry& entry = entries[i];
    bool apart = follows(entries, i) && (is_file(entries[i - 1]) || bss_ends[i] > entry.start);
    add(entry.start, entry, bss_ends[i], entry.perms, {});
    add(bss_ends[i], entry, entry.end, apart ? entry.perms | wire::kApart : entry.perms,
        entry.path);
  }
  Payload payload;
  payload.u32(count).raw(rows.bytes().data(), rows.bytes().size());
  return payload;
}

Payload absent_record(const ResidentPages& resident_pages) {
  // Mappings beyond the limit are reported as if something were there.
  constexpr std::size_t kMax = 1 << 20;
  std::size_t count = std::min(resident_pages.absent.size(), kMax);
  Payload payload;
  payload.u32(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i)
    payload.u64(resident_pages.absent[i].start).u64(resident_pages.absent[i].end);
  return payload;
}

std::vector<Module> find_modules(const std::vector<MapEntry>& entries,
                                 const ResidentPages& resident_pages, const Memory& memory) {
  ImageMemory touchable{resident_pages, memory};
  ImageSearch images(touchable);
  std::vector<Module> modules;
  for (const MapEntry& entry : entries) {
    ElfImage image = images.begins_at(entry);
    if (image.valid) modules.push_back({entry.start, entry.path, std::move(image)});
  }
  return modules;
}

Payload modules_record(const std::vector<MapEntry>& entries, const ResidentPages& resident_pages,
                       const Memory& memory) {
  ImageMemory touchable{resident_pages, memory};
  std::vector<Module> modules = find_modules(entries, resident_pages, memory);
  Payload payload;
  payload.u32(static_cast<std::uint32_t>(modules.size()));
  for (const Module& module : modules)
    payload.u64(module.start)
        .str(module.path)
        .str(build_id_of(module.image, touchable.from(module.start)));
  return payload;
}

}  // namespace reachscan::helper
