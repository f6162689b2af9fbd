// Follows the loader's list and reads symbol tables in the target's memory, which may contain
// anything.
#include "helper/recording/loaded_functions.hpp"

#include <elf.h>
#include <link.h>

#include <optional>

#include "helper/recording/session.hpp"

namespace reachscan::helper {
namespace {

constexpr std::uint64_t kMostHeaders = 64, kMaxEntries = 512, kMostModules = 1 << 14;
constexpr std::uint32_t kLongestChain = 1 << 12;

template <typename Row>
std::optional<Row> read_row(const Memory& memory, std::uint64_t address) {
  Row row;
  if (!memory.try_read(address, &row, sizeof row)) return std::nullopt;
  return row;
}

std::uint64_t address_of(const void* there) { return reinterpret_cast<std::uintptr_t>(there); }

// Calls visit(tag, value) for the entries of the dynamic section at `address`.
template <typename Visit>
void each_entry(const Memory& memory, std::uint64_t address, Visit visit) {
  for (std::uint64_t i = 0; i < kMaxEntries; ++i) {
    auto entry = read_row<Elf64_Dyn>(memory, address + i * sizeof(Elf64_Dyn));
    if (!entry || entry->d_tag == DT_NULL) return;
    visit(entry->d_tag, entry->d_un.d_val);
  }
}

struct Function {
  std::uint64_t address;
  std::uint64_t bytes;
};

// The symbols that a module exports.
class Symbols {
 public:
  Symbols(const Memory& memory, const link_map& module) : memory_(memory), bias_(module.l_addr) {
    each_entry(memory, address_of(module.l_ld), [&](std::int64_t tag, std::uint64_t value) {
      // The loader of glibc has made addresses absolute; that of musl has not.
      std::uint64_t address = value < bias_ ? value + bias_ : value;
      if (tag == DT_SYMTAB) symbols_ = address;
      if (tag == DT_STRTAB) strings_ = address;
      if (tag == DT_GNU_HASH) hash_ = address;
      if (tag == DT_HASH) old_hash_ = address;
      if (tag == DT_VERSYM) versions_ = address;
    });
  }

  std::optional<Function> find(const char* name) const {
    if (hash_ != 0) return find_by_hash(name);
    auto count = old_hash_ == 0 ? std::nullopt : number(old_hash_ + sizeof(std::uint32_t));
    for (std::uint32_t i = 1; count && i < *count; ++i)
      if (auto function = named(i, name)) return function;
    return std::nullopt;
  }

 private:
  std::optional<std::uint32_t> number(std::uint64_t address) const {
    return read_row<std::uint32_t>(memory_, address);
  }

  std::optional<Function> find_by_hash(const char* name) const {
    std::uint32_t hash = 5381;
    for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
    struct Head {
      std::uint32_t bucket_count, first, filter_words, shift;
    };
    auto head = read_row<Head>(memory_, hash_);
    if (!head || head->bucket_count == 0) return std::nullopt;
    std::uint64_t buckets =
        hash_ + sizeof *head + std::uint64_t{head->filter_words} * sizeof(std::uint64_t);
    std::uint64_t chain = buckets + std::uint64_t{head->bucket_count} * sizeof hash;
    auto index = number(buckets + std::uint64_t{hash % head->bucket_count} * sizeof hash);
    if (!index || *index < head->first) return std::nullopt;
    for (std::uint32_t i = *index; i - *index < kLongestChain; ++i) {
      auto link = number(chain + std::uint64_t{i - head->first} * sizeof hash);
      if (!link) break;
      if (auto function = (*link | 1) == (hash | 1) ? named(i, name) : std::nullopt)
        return function;
      if ((*link & 1) != 0) break;
    }
    return std::nullopt;
  }

  // Returns symbol `i` if it is a function of this name in its default version.
  std::optional<Function> named(std::uint32_t i, const char* name) const {
    constexpr std::uint16_t kOldVersion = 0x8000;
    auto symbol = read_row<Elf64_Sym>(memory_, symbols_ + i * sizeof(Elf64_Sym));
    std::vector<char> text(std::strlen(name) + 1);
    if (!symbol || symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
        !memory_.try_read(strings_ + symbol->st_name, text.data(), text.size()) ||
        std::memcmp(text.data(), name, text.size()) != 0)
      return std::nullopt;
    auto version = read_row<std::uint16_t>(memory_, versions_ + i * sizeof(std::uint16_t));
    if (versions_ != 0 && (!version || (*version & kOldVersion) != 0)) return std::nullopt;
    return Function{bias_ + symbol->st_value, symbol->st_size};
  }

  const Memory& memory_;
  std::uint64_t bias_;
  std::uint64_t symbols_ = 0, strings_ = 0, hash_ = 0, old_hash_ = 0, versions_ = 0;
};

// Returns the start of the loader's list, as the loader has left it for the program, 0 if it has
// not.
std::uint64_t find_list(pid_t pid, const Memory& memory) {
  std::uint64_t headers = auxiliary(pid, AT_PHDR), bias = 0, dynamic = 0, told = 0;
  std::uint64_t count = std::min(auxiliary(pid, AT_PHNUM), kMostHeaders);
  for (std::uint64_t i = 0; i < count; ++i) {
    auto header = read_row<Elf64_Phdr>(memory, headers + i * sizeof(Elf64_Phdr));
    if (header && header->p_type == PT_PHDR) bias = headers - header->p_vaddr;
    if (header && header->p_type == PT_DYNAMIC) dynamic = header->p_vaddr;
  }
  if (dynamic == 0) return 0;
  each_entry(memory, bias + dynamic, [&](std::int64_t tag, std::uint64_t value) {
    if (tag == DT_DEBUG) told = value;
  });
  auto list = told == 0 ? std::nullopt : read_row<r_debug>(memory, told);
  return list ? address_of(list->r_map) : 0;
}

}  // namespace

std::vector<TargetFunction> find_loaded_functions(pid_t pid, const Memory& memory) {
  std::vector<TargetFunction> functions;
  bool is_found[recorder::kHookedCount] = {};
  std::uint64_t at = find_list(pid, memory);
  for (std::uint64_t i = 0; at != 0 && i < kMostModules; ++i) {
    auto module = read_row<link_map>(memory, at);
    if (!module) break;
    Symbols symbols(memory, *module);
    for (std::uint32_t hook = 0; hook < recorder::kHookedCount; ++hook) {
      if (is_found[hook]) continue;
      auto function = symbols.find(recorder::kHookedFunctions[hook].name);
      if (!function) continue;
      functions.emplace_back(hook, function->address, function->bytes, memory);
      is_found[hook] = true;
    }
    at = address_of(module->l_next);
  }
  return functions;
}

}  // namespace reachscan::helper
