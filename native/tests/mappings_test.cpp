// What the sweeper learns about each mapping: which belong to the image of a library.
#include "helper/target/mappings.hpp"

#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "memory.hpp"

using namespace reachscan;
using namespace reachscan::tests;
using helper::MapEntry;

namespace {

constexpr uint64_t kPage = heaps::kPage, kSegment = 2 << 20;
constexpr uint64_t kLibrary = kWorld, kData = kLibrary + kSegment;
constexpr uint32_t kReadOnly = wire::kRead, kReadShared = wire::kRead | wire::kShared;

// A library whose segments are two MiB apart in memory, and whose file is so small that both are in
// its first page.
struct SmallLibrary {
  SmallLibrary() {
    for (uint64_t base : {kLibrary, kData}) {
      memory.map(base, kPage, wire::kRead, abi::kFileBacked, 1);
      Elf64_Ehdr header{};
      std::memcpy(header.e_ident, ELFMAG, SELFMAG);
      header.e_ident[EI_CLASS] = ELFCLASS64;
      header.e_type = ET_DYN;
      header.e_phoff = sizeof header;
      header.e_phnum = 2;
      memory.store(base, header);
      Elf64_Phdr code{PT_LOAD, PF_R | PF_X, 0, 0, 0, 0xdf8, 0xdf8, kSegment};
      Elf64_Phdr data{PT_LOAD,          PF_R | PF_W, 0xe00,           kSegment + 0xe00,
                      kSegment + 0xe00, 0x270,       bss_end - 0xe00, kSegment};
      memory.store(base + sizeof header, code);
      memory.store(base + sizeof header + sizeof code, data);
    }
  }

  void add_file(uint64_t start, uint64_t end, uint32_t perms) {
    entries.push_back({start, end, 0, 77, "08:01", perms, "/x.so", helper::Backing::kFile});
  }
  void add_anonymous(uint64_t start, uint64_t end, const char* name = "") {
    entries.push_back({start, end, 0, 0, "00:00", kReadWrite, name, helper::Backing::kNothing});
  }
  std::vector<abi::Mapping> classified() const {
    std::vector<uint64_t> bss_ends = helper::find_bss_ends(entries, {}, helper::Memory(getpid()));
    return helper::classify(entries, bss_ends, {});
  }
  abi::Mapping last() const { return classified().back(); }

  static constexpr uint64_t bss_end = 3 * kPage;
  Memory memory;
  std::vector<MapEntry> entries;
};

CASE(what_follows_its_data_is_bss) {
  for (const char* name : {"", "[anon:.bss]"}) {
    SmallLibrary library;
    library.add_file(kLibrary, kLibrary + kPage, kReadOnly | wire::kExecute);
    library.add_file(kData, kData + kPage, kReadWrite);
    library.add_anonymous(kData + kPage, kData + 9 * kPage, name);
    std::vector<abi::Mapping> mappings = library.classified();
    CHECK_EQ(mappings.size(), 4u);
    CHECK_EQ(mappings[2].end, kData + SmallLibrary::bss_end);
    CHECK_EQ(mappings[2].flags, uint32_t{abi::kFollowsFile});
    CHECK_EQ(mappings[2].file, mappings[1].file);
    CHECK_EQ(mappings[3].flags, 0u);
    CHECK_EQ(mappings[3].file, 0u);
  }
}

CASE(a_context_of_asynchronous_requests_is_the_kernels) {
  SmallLibrary library;
  library.entries.push_back({kData, kData + kPage, 0, 9, "00:13", kReadWrite | wire::kShared,
                             "/[aio] (deleted)", helper::Backing::kOther});
  CHECK_EQ(library.last().flags, uint32_t{abi::kKernelOwned | abi::kFileBacked});
}

// The data's page starts like an image but is none: that would extend two MiB further.
CASE(what_follows_others_is_not) {
  SmallLibrary library;
  uint64_t end = kData + SmallLibrary::bss_end, heap = kData + kSegment;
  library.add_file(kLibrary, kLibrary + kPage, kReadOnly | wire::kExecute);
  library.add_file(kData, kData + kPage, kReadWrite);
  library.add_anonymous(kData + kPage, end);
  library.entries.push_back({end, heap, 0, 5, "00:01", kReadShared, "/SYSV00000000 (deleted)",
                             helper::Backing::kSharedMemory});
  library.add_anonymous(heap, heap + 9 * kPage);
  CHECK_EQ(library.last().start, heap);
  CHECK_EQ(library.last().flags, 0u);
}

// The kernel also places a program's mappings between two segments.
CASE(what_lies_between_segments_is_not) {
  SmallLibrary library;
  library.add_file(kLibrary, kLibrary + kPage, kReadOnly | wire::kExecute);
  library.add_anonymous(kLibrary + kPage, kData);
  library.add_file(kData, kData + kPage, kReadWrite);
  library.add_anonymous(kData + kPage, kData + SmallLibrary::bss_end);
  std::vector<abi::Mapping> mappings = library.classified();
  CHECK_EQ(mappings.size(), 4u);
  CHECK_EQ(mappings[1].flags, 0u);
  CHECK_EQ(mappings[1].file, 0u);
  CHECK_EQ(mappings[3].flags, uint32_t{abi::kFollowsFile});
}

CASE(it_is_one_module) {
  SmallLibrary library;
  library.add_file(kLibrary, kLibrary + kPage, kReadOnly | wire::kExecute);
  library.add_file(kData, kData + kPage, kReadWrite);
  std::string bytes = helper::modules_record(library.entries, {}, helper::Memory(getpid())).bytes();
  uint32_t count = 0;
  std::memcpy(&count, bytes.data(), sizeof count);
  CHECK_EQ(count, 1u);
}

}  // namespace
