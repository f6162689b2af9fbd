// Reads what the loader lists while other threads may load and close modules: memory that is listed
// now may be unmapped at any time.
#pragma once

#include <sys/uio.h>

#include "arch/address_space.hpp"
#include "recorder/images.hpp"
#include "recorder/kernel.hpp"

namespace reachscan::recorder {

// By plain loads while nothing can be unmapped; otherwise by the kernel, which fails where nothing
// is mapped.
enum class Reading { kPlain, kByKernel };

// Returns false if not all of it can be read.
inline bool copy_memory(Reading reading, void* to, std::uint64_t from, std::size_t bytes) {
  if (reading == Reading::kPlain) {
    __builtin_memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return true;
  }
  iovec here{to, bytes}, there{reinterpret_cast<void*>(from), bytes};
  long copied = call(__NR_process_vm_readv, process_id(), as_word(&here), 1, as_word(&there), 1, 0);
  return copied == static_cast<long>(bytes);
}

// Truncates what is too long, and reads no page behind the one in which the text ends.
template <std::size_t N>
bool copy_text(Reading reading, char (&to)[N], std::uint64_t from) {
  constexpr std::size_t kPage = arch::kSmallestPage;
  static_assert(N <= kPage);
  std::size_t first = kPage - from % kPage, length = 0;
  if (first > N) first = N;
  if (!copy_memory(reading, to, from, first)) return false;
  while (length < first && to[length] != 0) ++length;
  if (length == first && !copy_memory(reading, to + first, from + first, N - first)) return false;
  while (length < N - 1 && to[length] != 0) ++length;
  __builtin_memset(to + length, 0, N - length);
  return true;
}

// A module as it was when the list was read. The headers of its image are a copy.
struct LoadedModule {
  static constexpr std::size_t kMaxHeaders = 20;

  // Returns false if there is no module, or no longer.
  bool read(Reading reading, const link_map& listed) {
    Elf64_Ehdr header;
    if (listed.l_addr == 0 || !copy_memory(reading, &header, listed.l_addr, sizeof header) ||
        __builtin_memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
      return false;
    std::size_t count = header.e_phnum < kMaxHeaders ? header.e_phnum : kMaxHeaders;
    headers_at = listed.l_addr + header.e_phoff;
    image = {listed.l_addr, headers, count, {}};
    return copy_memory(reading, headers, headers_at, count * sizeof *headers);
  }

  const link_map* entry = nullptr;  // null: the program
  std::uint64_t path = 0;           // the address of its text
  std::uint64_t headers_at = 0;
  Image image;
  Elf64_Phdr headers[kMaxHeaders];
};

// Calls visit(module) for what is listed, in the order of the list. Returns false if that changed
// meanwhile, or visit() returned false.
template <typename Visit>
bool each_loaded(Reading reading, const LinkMap& list, Visit visit) {
  LoadedModule module;
  module.path = reinterpret_cast<std::uint64_t>("");
  module.image = list.program();
  if (!list.is_settled() || !visit(module)) return false;
  link_map listed{}, again{};
  for (module.entry = list.after_program(); module.entry != nullptr; module.entry = listed.l_next) {
    auto at = reinterpret_cast<std::uint64_t>(module.entry);
    if (!copy_memory(reading, &listed, at, sizeof listed)) return false;
    bool is_module = module.read(reading, listed);
    module.path = reinterpret_cast<std::uint64_t>(listed.l_name == nullptr ? "" : listed.l_name);
    if (is_module && !visit(module)) return false;
    if (!copy_memory(reading, &again, at, sizeof again) ||
        __builtin_memcmp(&listed, &again, sizeof listed) != 0)
      return false;
  }
  return list.is_settled();
}

}  // namespace reachscan::recorder
