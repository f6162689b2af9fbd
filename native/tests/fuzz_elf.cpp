// Damages the image of a library in memory, and runs everything that reads images: the search for
// another malloc in the clone; program headers, notes and build ids in the helper.
#include <elf.h>
#include <unistd.h>

#include "fuzz_input.hpp"
#include "heaps/interposed.hpp"
#include "helper/target/mappings.hpp"
#include "memory.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);

namespace reachscan::tests {
namespace {

constexpr uint64_t kPage = heaps::kPage;
constexpr uint64_t kImage = kWorld + (4ull << 30);
constexpr uint64_t kSegments = 0x40, kNotes = 0x180, kDynamic = 0x200, kHashes = 0x300,
                   kSymbols = 0x400, kStrings = 0x500, kUsed = 0x540;
constexpr char kNames[] = "\0malloc\0_dl_allocate_tls";
constexpr uint32_t kMallocHash = 0x0d39ad3d;  // of the GNU hash table

void add_segment(Memory& memory, uint64_t number, Elf64_Phdr segment) {
  memory.store(kImage + kSegments + number * sizeof segment, segment);
}

// An image as the loader leaves it: a code and a data segment, a note, and one defined function.
void make_image(Memory& memory) {
  memory.map(kImage, kPage, wire::kRead, abi::kFileBacked, 5);
  memory.map(kImage + kPage, kPage, kReadWrite, abi::kFileBacked, 5);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_type = ET_DYN;
  header.e_phoff = kSegments;
  header.e_phnum = 4;
  memory.store(kImage, header);
  add_segment(memory, 0, {PT_LOAD, PF_R, 0, 0, 0, kPage, kPage, kPage});
  add_segment(memory, 1, {PT_LOAD, PF_R | PF_W, kPage, kPage, kPage, kPage, 3 * kPage, kPage});
  add_segment(memory, 2, {PT_NOTE, PF_R, kNotes, kNotes, kNotes, 36, 36, 4});
  add_segment(memory, 3, {PT_DYNAMIC, PF_R, kDynamic, kDynamic, kDynamic, 64, 64, 8});
  struct {
    Elf64_Nhdr note{4, 20, NT_GNU_BUILD_ID};
    char name[4] = {'G', 'N', 'U', 0};
    unsigned char id[20] = {1, 2, 3};
  } build_id;
  memory.store(kImage + kNotes, build_id);
  uint64_t entries[] = {DT_SYMTAB,   kImage + kSymbols, DT_STRTAB, kImage + kStrings,
                        DT_GNU_HASH, kImage + kHashes,  DT_NULL,   0};
  for (std::size_t i = 0; i < std::size(entries); ++i)
    memory.put(kImage + kDynamic + 8 * i, entries[i]);
  // One bucket, first symbol 1, one word of Bloom filter; then the bucket and its chain.
  const uint32_t words[] = {1, 1, 1, 0, ~0u, ~0u, 1, kMallocHash | 1};
  for (std::size_t i = 0; i < std::size(words); ++i)
    memory.store(kImage + kHashes + 4 * i, words[i]);
  Elf64_Sym symbol{1, 0, 0, 12, 0, 0};
  memory.store(kImage + kSymbols + sizeof symbol, symbol);
  std::memcpy(reinterpret_cast<void*>(kImage + kStrings), kNames, sizeof kNames);
}

void damage(Input& input, Memory& memory) {
  while (!input.empty()) {
    uint64_t at = kImage + input.take<uint16_t>() % kUsed;
    auto how = input.take<unsigned char>();
    if (how % 4 == 0) {
      memory.store(at, input.take<unsigned char>());
    } else if (how % 4 == 1) {
      memory.store(at, input.take<uint32_t>());
    } else if (how % 4 == 2) {
      memory.put(at & ~7ull, kImage + input.take<uint32_t>() % (4 * kPage));
    } else {
      memory.put(at & ~7ull, input.take<uint64_t>());
    }
  }
}

std::vector<helper::MapEntry> entries_of(const Memory& memory, Input& input) {
  std::vector<helper::MapEntry> entries;
  for (const abi::Mapping& m : memory.mappings())
    entries.push_back({m.start, m.end, m.start - kImage, 77, "08:01", m.perms, "/usr/lib/x.so",
                       helper::Backing::kFile});
  uint64_t behind = entries.back().end, bytes = input.take<unsigned char>() % 8 * kPage;
  entries.push_back(
      {behind, behind + kPage + bytes, 0, 0, "00:00", kReadWrite, "", helper::Backing::kNothing});
  return entries;
}

}  // namespace
}  // namespace reachscan::tests

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace reachscan;
  using namespace reachscan::tests;
  static const helper::Memory own(getpid());
  Input input(data, size);
  Memory memory;
  make_image(memory);
  std::vector<helper::MapEntry> entries = entries_of(memory, input);
  damage(input, memory);
  heaps::find_interposed_malloc(memory.space(), [](uint32_t) { return false; });
  uint64_t end = 0;
  std::vector<uint64_t> bss_ends = helper::find_bss_ends(entries, {}, own);
  for (const abi::Mapping& m : helper::classify(entries, bss_ends, {})) {
    // Whatever the image says, the mappings remain sorted and disjoint.
    if (m.start < end || m.end <= m.start) __builtin_trap();
    end = m.end;
  }
  helper::modules_record(entries, {}, own);
  return 0;
}
