// Reads the headers and notes of a core file, with every bound checked.
#include "helper/core/core_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/procfs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "arch/address_space.hpp"
#include "arch/machine.hpp"
#include "helper/target/text.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {
namespace {

using arch::kPage;
using wire::Step;

static_assert(sizeof(elf_gregset_t) == arch::kCoreRegisterBytes);

// A thread has 4 KiB of notes, or 11 where the processor has matrix registers.
constexpr std::uint64_t kMaxNoteBytes = 1ull << 30;

[[noreturn]] void refuse(const std::string& sentence, Code code = Code::kBadCore, int error = 0) {
  throw Failure(Step::kOpenTarget, code, sentence, error);
}

[[noreturn]] void refuse_damaged(const std::string& what) {
  refuse("the core file is damaged: " + what);
}

// Takes values from the front of a note; returns nothing once it is used up.
class NoteReader {
 public:
  explicit NoteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  std::optional<T> take() {
    if (bytes_.size() < sizeof(T)) return {};
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }

  std::optional<std::string_view> take_bytes(std::size_t length) {
    std::size_t padded = (length + 3) & ~std::size_t{3};
    if (bytes_.size() < length) return {};
    std::string_view value = bytes_.substr(0, length);
    bytes_.remove_prefix(std::min(padded, bytes_.size()));
    return value;
  }

  std::optional<std::string_view> take_text() {
    std::size_t end = bytes_.find('\0');
    if (end == bytes_.npos) return {};
    std::string_view text = bytes_.substr(0, end);
    bytes_.remove_prefix(end + 1);
    return text;
  }

  std::size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

// Reads text from a field of fixed size.
template <std::size_t kSize>
std::string text_of(const char (&field)[kSize]) {
  return {field, strnlen(field, kSize)};
}

void require_core(const Elf64_Ehdr& header) {
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    refuse("it is not a core file: it does not begin like an ELF file");
  if (arch::kElfMachine == EM_NONE)
    refuse("core files of 32-bit programs are not supported", Code::kUnsupportedArchitecture);
  bool is_ours = header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB;
  if (is_ours && header.e_type != ET_CORE)
    refuse("it is not a core file, but a program, a library or another kind of ELF file");
  if (!is_ours || header.e_machine != arch::kElfMachine)
    refuse(std::string("it is not a core file of ") + arch::kProgramKind,
           Code::kUnsupportedArchitecture);
  if (header.e_phentsize != sizeof(Elf64_Phdr)) refuse_damaged("its segments have a strange size");
}

}  // namespace

std::uint32_t permissions(std::uint32_t flags) {
  std::uint32_t perms = 0;
  if ((flags & PF_R) != 0) perms |= wire::kRead;
  if ((flags & PF_W) != 0) perms |= wire::kWrite;
  if ((flags & PF_X) != 0) perms |= wire::kExecute;
  return perms;
}

CoreFile::CoreFile(const std::string& path)
    : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status {};
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0)
    refuse(std::string("the core file cannot be read: ") + std::strerror(errno), Code::kBadCore,
           errno);
  try {
    if (!S_ISREG(status.st_mode)) refuse("a core file must be a regular file");
    size_ = static_cast<std::uint64_t>(status.st_size);
    written_ = static_cast<std::uint64_t>(status.st_mtim.tv_sec) * 1'000'000'000u +
               static_cast<std::uint64_t>(status.st_mtim.tv_nsec);
    read_headers();
    if (threads_.empty()) refuse_damaged("it tells of no thread");
    if (files_.empty())
      refuse(
          "the core file does not tell which files were mapped; the kernel leaves out a list of "
          "more than kernel.core_file_note_size_limit bytes");
    if (pid_ == 0) pid_ = threads_.front().tid;
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

CoreFile::~CoreFile() { close(descriptor_); }

void CoreFile::require_whole(std::uint64_t offset, std::uint64_t length) const {
  std::uint64_t end = 0;
  if (__builtin_add_overflow(offset, length, &end)) refuse_damaged("it ends nowhere");
  if (end <= size_) return;
  refuse("the core file is truncated: it should have at least " + std::to_string(end) +
         " bytes, and has " + std::to_string(size_));
}

void CoreFile::read_file(std::uint64_t offset, void* buffer, std::size_t length) const {
  for (std::size_t done = 0; done < length;) {
    ssize_t got = pread(descriptor_, static_cast<char*>(buffer) + done, length - done,
                        static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Failure(Step::kReadMemory, Code::kBadCore,
                    got < 0 ? std::string("the core file cannot be read: ") + std::strerror(errno)
                            : "the core file became shorter while it was read",
                    got < 0 ? errno : 0);
    done += static_cast<std::size_t>(got);
  }
}

void CoreFile::read_headers() {
  Elf64_Ehdr header{};
  if (size_ == 0) refuse("it is not a core file: it is empty");
  read_file(0, &header, std::min<std::uint64_t>(sizeof header, size_));
  require_core(header);
  std::uint64_t count = header.e_phnum;
  if (count == PN_XNUM) {  // the number is too large for its field
    Elf64_Shdr section{};
    require_whole(header.e_shoff, sizeof section);
    read_file(header.e_shoff, &section, sizeof section);
    count = section.sh_info;
  }
  require_whole(header.e_phoff, count * sizeof(Elf64_Phdr));
  std::vector<Elf64_Phdr> headers(count);
  read_file(header.e_phoff, headers.data(), count * sizeof(Elf64_Phdr));
  for (const Elf64_Phdr& h : headers) {
    if (h.p_type != PT_NOTE && h.p_type != PT_LOAD) continue;
    require_whole(h.p_offset, h.p_filesz);
    if (h.p_type == PT_NOTE) read_notes(h.p_offset, h.p_filesz);
    if (h.p_type == PT_LOAD) add_segment(h.p_vaddr, h.p_filesz, h.p_memsz, h.p_offset, h.p_flags);
  }
  std::sort(segments_.begin(), segments_.end(),
            [](const CoreSegment& a, const CoreSegment& b) { return a.start < b.start; });
  for (std::size_t i = 1; i < segments_.size(); ++i)
    if (segments_[i].start < segments_[i - 1].end) refuse_damaged("its segments overlap");
}

void CoreFile::add_segment(std::uint64_t start, std::uint64_t bytes, std::uint64_t in_memory,
                           std::uint64_t offset, std::uint32_t flags) {
  // Anything above belongs to the kernel: the vsyscall page.
  if (start >= arch::kUserEnd || in_memory == 0) return;
  if (start % kPage != 0 || in_memory > arch::kUserEnd - start)
    refuse_damaged("its segments are no memory of a process");
  std::uint64_t end = (start + in_memory + kPage - 1) & ~(kPage - 1);
  segments_.push_back({start, end, offset, std::min(bytes, in_memory), permissions(flags)});
}

std::uint64_t CoreFile::auxiliary(std::uint64_t type) const {
  auto at = auxiliary_.find(type);
  return at == auxiliary_.end() ? 0 : at->second;
}

bool CoreFile::try_read(std::uint64_t address, void* buffer, std::size_t length) const {
  auto at = std::upper_bound(
      segments_.begin(), segments_.end(), address,
      [](std::uint64_t value, const CoreSegment& segment) { return value < segment.end; });
  if (at == segments_.end() || address < at->start) return false;
  std::uint64_t within = address - at->start;
  if (within > at->bytes || length > at->bytes - within) return false;
  read_file(at->offset + within, buffer, length);
  return true;
}

void CoreFile::read_notes(std::uint64_t offset, std::uint64_t length) {
  if (length > kMaxNoteBytes) refuse_damaged("it has too many notes");
  std::string bytes(length, '\0');
  read_file(offset, bytes.data(), length);
  NoteReader notes(bytes);
  while (notes.left() > 0) {
    auto header = notes.take<Elf64_Nhdr>();
    auto owner = header ? notes.take_bytes(header->n_namesz) : std::nullopt;
    auto value = owner ? notes.take_bytes(header->n_descsz) : std::nullopt;
    if (!value) refuse_damaged("a note does not end");
    take_note(owner->substr(0, owner->find('\0')), header->n_type, *value);
  }
}

void CoreFile::take_note(std::string_view owner, std::uint32_t type, std::string_view value) {
  if (owner == "LINUX" && type == arch::kVectorState) take_vector_state(value);
  if (owner == "LINUX" && !threads_.empty())
    arch::take_core_note(type, value, threads_.back().registers);
  if (owner != "CORE") return;
  switch (type) {
    case NT_PRSTATUS:
      return take_thread(value);
    case NT_PRFPREG:  // part of the vector state, which follows if the processor has one
      return take_vector_state(value);
    case NT_PRPSINFO:
      return take_process(value);
    case NT_AUXV:
      return take_auxiliary(value);
    case NT_FILE:
      return take_files(value);
  }
}

void CoreFile::take_thread(std::string_view value) {
  auto status = NoteReader(value).take<elf_prstatus>();
  if (!status) refuse_damaged("the registers of a thread are incomplete");
  CoreThread thread{status->pr_pid, {}, {}};
  std::memcpy(&thread.registers, &status->pr_reg, arch::kCoreRegisterBytes);
  if (threads_.empty()) signal_ = status->pr_cursig;
  threads_.push_back(std::move(thread));
}

// For the thread of the preceding note.
void CoreFile::take_vector_state(std::string_view value) {
  if (threads_.empty()) refuse_damaged("registers of no thread");
  std::vector<std::uint64_t> state(value.size() / sizeof(std::uint64_t));
  std::copy_n(value.data(), state.size() * sizeof state[0], reinterpret_cast<char*>(state.data()));
  threads_.back().vector_words.clear();
  arch::append_vector_words(state.data(), state.size(), threads_.back().vector_words);
}

void CoreFile::take_process(std::string_view value) {
  auto info = NoteReader(value).take<elf_prpsinfo>();
  if (!info) refuse_damaged("what it says of the process is incomplete");
  pid_ = info->pr_pid;
  // The kernel's task names are no longer than this; gdb fills the whole field.
  name_ = text_of(info->pr_fname).substr(0, sizeof info->pr_fname - 1);
  std::string words = text_of(info->pr_psargs);
  std::string_view rest = words;
  for (std::string_view word; !(word = take_word(rest)).empty();) arguments_.emplace_back(word);
}

void CoreFile::take_auxiliary(std::string_view value) {
  NoteReader entries(value);
  while (auto entry = entries.take<Elf64_auxv_t>())
    if (entry->a_type != AT_NULL) auxiliary_.emplace(entry->a_type, entry->a_un.a_val);
  std::uint64_t page = auxiliary(AT_PAGESZ);
  if (page == 0 || page == kPage) return;
  refuse("the core file is of a machine with pages of " + std::to_string(page >> 10) +
             " KiB, and those of this machine have " + std::to_string(kPage >> 10),
         Code::kUnsupportedPageSize);
}

void CoreFile::take_files(std::string_view value) {
  NoteReader rows(value);
  auto count = rows.take<std::uint64_t>(), unit = rows.take<std::uint64_t>();
  if (!unit || *count > value.size() / 24) refuse_damaged("its list of files does not end");
  files_.clear();
  for (std::uint64_t i = 0; i < *count; ++i) {
    auto start = rows.take<std::uint64_t>(), end = rows.take<std::uint64_t>();
    auto offset = rows.take<std::uint64_t>();
    if (!offset || *start % kPage != 0 || *end % kPage != 0 || *start >= *end ||
        *end > arch::kUserEnd)
      refuse_damaged("a file is mapped nowhere");
    files_.push_back({*start, *end, *offset * *unit, {}});
  }
  for (CoreMappedFile& file : files_) {
    auto path = rows.take_text();
    if (!path) refuse_damaged("a mapped file has no name");
    file.path = *path;
  }
  std::sort(files_.begin(), files_.end(),
            [](const CoreMappedFile& a, const CoreMappedFile& b) { return a.start < b.start; });
  for (std::size_t i = 1; i < files_.size(); ++i)
    if (files_[i].start < files_[i - 1].end) refuse_damaged("its mapped files overlap");
}

}  // namespace reachscan::helper
