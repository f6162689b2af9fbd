// Tracks which programs and libraries are loaded, and finds their tables.
#include "recorder/unwind/modules.hpp"

#include "arch/instructions.hpp"
#include "recorder/kernel.hpp"

namespace reachscan::recorder {

namespace {

// Longer than any update takes. A thread that has waited in vain continues without.
constexpr int kMaxSpins = 100'000;

void read_build_id(const Image& image, ModuleRow& row) {
  image.each(PT_NOTE, [&](const Elf64_Phdr& header) {
    std::uint64_t at = image.bias + header.p_vaddr, end = at + header.p_memsz;
    std::uint64_t alignment = header.p_align == 8 ? 8 : 4;
    auto padded = [&](std::uint64_t bytes) { return (bytes + alignment - 1) & ~(alignment - 1); };
    while (at + sizeof(Elf64_Nhdr) <= end) {
      const auto* note = reinterpret_cast<const Elf64_Nhdr*>(at);
      const char* name = reinterpret_cast<const char*>(note + 1);
      std::uint64_t value = at + padded(sizeof *note + note->n_namesz);
      at = value + padded(note->n_descsz);
      if (note->n_type != NT_GNU_BUILD_ID || note->n_namesz != 4 ||
          __builtin_memcmp(name, "GNU", 4) != 0 || note->n_descsz > sizeof row.build_id || at > end)
        continue;
      row.build_id_bytes = note->n_descsz;
      __builtin_memcpy(row.build_id, reinterpret_cast<const void*>(value), note->n_descsz);
    }
  });
}

void read_row(const Image& image, const char* path, ModuleRow& row) {
  row = {};
  row.bias = image.bias;
  Extent extent = image.extent();
  row.start = extent.start;
  row.end = extent.start + extent.bytes;
  for (std::size_t i = 0; path[i] != 0 && i + 1 < sizeof row.path; ++i) row.path[i] = path[i];
  read_build_id(image, row);
}

UnwindTables read_unwind_tables(const Image& image) {
  UnwindTables tables;
  tables.index = image.first(PT_GNU_EH_FRAME);
  if (tables.index == 0 && image.frames.bytes != 0)
    return {0, image.frames.start, image.frames.start + image.frames.bytes};
  // The index and the tables are in one segment.
  image.each(PT_LOAD, [&](const Elf64_Phdr& header) {
    std::uint64_t start = image.bias + header.p_vaddr;
    if (tables.index - start < header.p_memsz)
      tables = {tables.index, start, start + header.p_memsz};
  });
  return tables;
}

bool same_module(const ModuleRow& a, const ModuleRow& b) {
  return a.start == b.start && a.end == b.end && a.build_id_bytes == b.build_id_bytes &&
         __builtin_memcmp(a.build_id, b.build_id, sizeof a.build_id) == 0 &&
         same_text(a.path, b.path);
}

}  // namespace

std::uint32_t Modules::find_same(const ModuleRow& row) const {
  for (std::uint32_t i = 1; i < header_->used_modules; ++i)
    if (same_module(rows_[i], row)) return i;
  return 0;
}

void Modules::close_missing(RuleCache& rules, StackTrie& stacks) {
  link_map_.each([&](const Image& image, const char* path) {
    ModuleRow row;
    read_row(image, path, row);
    own_[find_same(row)].seen = updates_;
  });
  for (std::uint32_t i = 1; i < header_->used_modules; ++i) {
    if (is_closed(i) || own_[i].seen == updates_) continue;
    __atomic_store_n(&rows_[i].closed, 1, __ATOMIC_RELEASE);
    rules.forget(rows_[i].start, rows_[i].end);
    if (own_[i].has_nodes != 0) stacks.close(rows_[i].start, rows_[i].end);
    __atomic_fetch_add(&closings_, 1, __ATOMIC_RELEASE);
  }
}

Calls Modules::calls_of(const Image& image, const char* path) const {
  if (!wanted_->is_given()) return Calls::kWanted;
  constexpr char kOperatorNew[] = "_Znwm";
  char own_path[256] = {};
  bool is_program = path[0] == 0;
  if (is_program) read_program_path(own_path);
  if (wanted_->matches(is_program ? own_path : path)) return Calls::kWanted;
  bool has_operators = !is_program && Symbols(image).find(kOperatorNew) != 0;
  return has_operators ? Calls::kOfCaller : Calls::kUnwanted;
}

void Modules::add(const Image& image, const char* path, RuleCache& rules) {
  ModuleRow row;
  read_row(image, path, row);
  std::uint32_t i = find_same(row), used = header_->used_modules;
  if (row.end == 0 || (i != 0 && !is_closed(i)) || (i == 0 && used == header_->modules.count))
    return;
  if (i == 0) {
    i = used;
    rows_[i] = row;
  }
  own_[i] = {read_unwind_tables(image), updates_, 0, calls_of(image, path)};
  // Generated code may have been here before. For the first update, nothing has been looked up yet.
  if (updates_ > 1) rules.forget(row.start, row.end);
  __atomic_store_n(&rows_[i].closed, 0, __ATOMIC_RELEASE);
  if (i == used) __atomic_store_n(&header_->used_modules, used + 1, __ATOMIC_RELEASE);
}

void Modules::update(RuleCache& rules, StackTrie& stacks) {
  for (int i = 0; __atomic_exchange_n(&updating_, 1, __ATOMIC_ACQUIRE) != 0; ++i) {
    if (i == kMaxSpins) return;
    arch::relax();
  }
  if (link_map_.is_settled()) {
    ++updates_;
    close_missing(rules, stacks);
    link_map_.each([&](const Image& image, const char* path) { add(image, path, rules); });
  }
  end_update();
}

}  // namespace reachscan::recorder
