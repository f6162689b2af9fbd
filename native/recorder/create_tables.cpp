// Lays out empty tables in a mapping of their own.
#include "recorder/create_tables.hpp"

#include "arch/address_space.hpp"

namespace reachscan::recorder {

namespace {

constexpr std::uint64_t kPage = arch::kLargestPage;

// Lays out one part after the other, each starting on a page.
class Layout {
 public:
  template <typename Row>
  Part add(std::uint64_t bytes) {
    Part part{end_, bytes / sizeof(Row)};
    end_ += (bytes + kPage - 1) / kPage * kPage;
    return part;
  }

  std::uint64_t end() const { return end_; }

 private:
  std::uint64_t end_ = (sizeof(Header) + kPage - 1) / kPage * kPage;
};

std::uint64_t smaller(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

// A quarter holds stacks, which are shared; most of the rest holds live blocks.
void lay_out(Header& header) {
  std::uint64_t bytes = header.bytes;
  Layout layout;
  header.nodes = layout.add<Node>(smaller(bytes / 4, kMaxNodes * sizeof(Node)));
  header.threads = layout.add<ThreadRow>(smaller(bytes / 64, kMaxThreads * sizeof(ThreadRow)));
  header.modules = layout.add<ModuleRow>(smaller(bytes / 64, sizeof(ModuleRow) << 16));
  header.functions =
      layout.add<PythonFunction>(smaller(bytes / 64, kMaxFunctions * sizeof(PythonFunction)));
  if (header.options.with_mappings != 0)
    header.mappings =
        layout.add<MappingRow>(smaller(bytes / 64, kMaxMappings * sizeof(MappingRow)));
  constexpr std::uint64_t kBucketBytes = sizeof(Bucket) + kKeys * sizeof(Record);
  // Two pages are lost where parts start.
  std::uint64_t buckets = (bytes - layout.end() - 2 * kPage) / kBucketBytes;
  header.buckets = layout.add<Bucket>(buckets * sizeof(Bucket));
  header.records = layout.add<Record>(buckets * kKeys * sizeof(Record));
}

}  // namespace

Header* create_tables(const Settings& settings, const Clock& clock) {
  constexpr std::uint64_t kSmallest = std::uint64_t{1} << 20;
  std::uint64_t bytes = settings.memory / kPage * kPage;
  if (bytes < kSmallest) return nullptr;
  // Guard pages on both sides keep the kernel from merging it with other mappings.
  auto* reserved = static_cast<unsigned char*>(map_memory(bytes + 2 * kPage, PROT_NONE));
  if (reserved == nullptr) return nullptr;
  if (!allow_access(reserved + kPage, bytes)) {
    unmap_memory(reserved, bytes + 2 * kPage);
    return nullptr;
  }
  name_mapping(reserved + kPage, bytes, kMappingName);
  auto* header = reinterpret_cast<Header*>(reserved + kPage);
  header->magic = kMagic;
  header->layout = kLayout;
  header->bytes = bytes;
  header->pid = process_id();
  header->started_realtime_ns = clock.realtime();
  header->started_monotonic_ns = clock.monotonic();
  header->options = settings.options;
  header->used_nodes = header->used_threads = header->used_modules = 1;  // the rows 0
  lay_out(*header);
  __atomic_store_n(&header->ready, 1, __ATOMIC_RELEASE);
  return header;
}

MappedRange extent_of_tables(const Header& header) {
  return {reinterpret_cast<std::uint64_t>(&header) - kPage, header.bytes + 2 * kPage};
}

}  // namespace reachscan::recorder
