// Lays out the recorder's image as a loader would.
#include "helper/recording/injected_image.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "arch/address_space.hpp"
#include "arch/imports.hpp"
#include "helper/images.hpp"

namespace reachscan::helper {
namespace {

// On kernels with smaller pages, too.
constexpr std::uint64_t kPage = arch::kLargestPage;

constexpr std::uint64_t kStackBytes = 64 << 10;

constexpr std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

static_assert(sizeof(arch::Stub) == recorder::kStubBytes && recorder::kStubPage == kPage &&
              recorder::kMaxHooks * recorder::kStubBytes <= kPage);

// The image was checked when it was linked.
template <typename Row>
Row row_at(const unsigned char* bytes, std::uint64_t index = 0) {
  Row row;
  std::memcpy(&row, bytes + index * sizeof row, sizeof row);
  return row;
}

}  // namespace

InjectedImage::InjectedImage() {
  const std::vector<unsigned char> file = unpacked(Image::kRecorder);
  auto header = row_at<Elf64_Ehdr>(file.data());
  entry_ = header.e_entry;
  std::uint64_t dynamic = 0;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    auto segment = row_at<Elf64_Phdr>(file.data() + header.e_phoff, i);
    if (segment.p_type == PT_DYNAMIC) dynamic = segment.p_vaddr;
    if (segment.p_type != PT_LOAD) continue;
    bytes_.resize(whole_pages(segment.p_vaddr + segment.p_memsz));
    std::memcpy(bytes_.data() + segment.p_vaddr, file.data() + segment.p_offset, segment.p_filesz);
    if ((segment.p_flags & PF_W) != 0) data_ = segment.p_vaddr / kPage * kPage;
  }
  std::uint64_t table = 0, bytes = 0;
  for (std::uint64_t i = 0; row_at<Elf64_Dyn>(&bytes_[dynamic], i).d_tag != DT_NULL; ++i) {
    auto entry = row_at<Elf64_Dyn>(&bytes_[dynamic], i);
    if (entry.d_tag == DT_RELA) table = entry.d_un.d_ptr;
    if (entry.d_tag == DT_RELASZ) bytes = entry.d_un.d_val;
  }
  for (std::uint64_t i = 0; i < bytes / sizeof(Elf64_Rela); ++i) {
    auto relocation = row_at<Elf64_Rela>(&bytes_[table], i);
    std::memcpy(&bytes_[relocation.r_offset], &relocation.r_addend, sizeof relocation.r_addend);
    moved_.push_back(relocation.r_offset);
  }
}

std::uint64_t InjectedImage::control() const { return kPage; }

std::uint64_t InjectedImage::code() const {
  return control() + whole_pages(sizeof(recorder::Injection)) + kStackBytes;
}

std::uint64_t InjectedImage::data() const { return image() + data_; }

std::uint64_t InjectedImage::end() const { return image() + bytes_.size(); }

std::uint64_t InjectedImage::region_bytes() const { return end() + kPage; }

std::vector<unsigned char> InjectedImage::relocated(std::uint64_t region) const {
  std::vector<unsigned char> all(end() - code());
  unsigned char* bytes = all.data() + kStubBytes;
  std::copy(bytes_.begin(), bytes_.end(), bytes);
  for (std::uint64_t at : moved_) {
    auto address = row_at<std::uint64_t>(bytes + at) + region + image();
    std::memcpy(bytes + at, &address, sizeof address);
  }
  return all;
}

}  // namespace reachscan::helper
