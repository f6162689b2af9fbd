// Tracks which programs and libraries are loaded, and finds their tables.
#include "recorder/unwind/modules.hpp"

#include "arch/frames.hpp"

namespace reachscan::recorder {

namespace {

void find_build_id(const unsigned char* notes, std::uint64_t bytes, std::uint64_t alignment,
                   ModuleRow& row) {
  auto padded = [&](std::uint64_t size) { return (size + alignment - 1) & ~(alignment - 1); };
  Elf64_Nhdr note;
  for (std::uint64_t at = 0; at + sizeof note <= bytes;) {
    __builtin_memcpy(&note, notes + at, sizeof note);
    std::uint64_t name = at + sizeof note;
    std::uint64_t value = at + padded(sizeof note + note.n_namesz);
    at = value + padded(note.n_descsz);
    if (at > bytes) return;
    if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 ||
        __builtin_memcmp(notes + name, "GNU", 4) != 0 || note.n_descsz > sizeof row.build_id)
      continue;
    row.build_id_bytes = note.n_descsz;
    __builtin_memcpy(row.build_id, notes + value, note.n_descsz);
  }
}

bool read_build_id(Reading reading, const Image& image, ModuleRow& row) {
  bool is_read = true;
  image.each(PT_NOTE, [&](const Elf64_Phdr& header) {
    unsigned char notes[256];
    std::uint64_t bytes = header.p_memsz < sizeof notes ? header.p_memsz : sizeof notes;
    if (row.build_id_bytes != 0 || !is_read) return;
    is_read = copy_memory(reading, notes, image.bias + header.p_vaddr, bytes);
    if (is_read) find_build_id(notes, bytes, header.p_align == 8 ? 8 : 4, row);
  });
  return is_read;
}

// Returns false if the module is being unmapped.
bool read_row(Reading reading, const LoadedModule& module, ModuleRow& row) {
  row = {};
  row.bias = module.image.bias;
  Extent extent = module.image.extent();
  row.start = extent.start;
  row.end = extent.start + extent.bytes;
  return copy_text(reading, row.path, module.path) && read_build_id(reading, module.image, row);
}

std::uint64_t hash_of(const Elf64_Phdr* headers, std::size_t count) {
  std::uint64_t hash = count;
  for (std::size_t i = 0; i < count * sizeof *headers / sizeof hash; ++i) {
    std::uint64_t word;
    __builtin_memcpy(&word, reinterpret_cast<const unsigned char*>(headers) + i * sizeof word,
                     sizeof word);
    hash = (hash ^ word) * 0x9e37'79b9'7f4a'7c15;
    hash ^= hash >> 32;
  }
  return hash;
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

UnwindTables own_unwind_tables() {
  Image own;
  return image_at(own_base(), own) ? read_unwind_tables(own) : UnwindTables{};
}

std::uint32_t Modules::find_same(const ModuleRow& row) const {
  for (std::uint32_t i = 1; i < header_->used_modules; ++i)
    if (same_module(rows_[i], row)) return i;
  return 0;
}

template <typename IsGone>
void Modules::close(RuleCache& rules, StackTrie& stacks, IsGone is_gone) {
  for (std::uint32_t i = 1; i < header_->used_modules; ++i) {
    if (is_closed(i) || own_[i].seen == updates_ || !is_gone(rows_[i])) continue;
    __atomic_store_n(&rows_[i].closed, 1, __ATOMIC_RELEASE);
    rules.forget(rows_[i].start, rows_[i].end);
    if (own_[i].has_nodes != 0) stacks.close(rows_[i].start, rows_[i].end);
    __atomic_fetch_add(&closings_, 1, __ATOMIC_RELEASE);
  }
}

bool Modules::is_current(std::uint32_t i) const {
  const Private& own = own_[i];
  if (own.is_permanent != 0) return true;
  Elf64_Phdr headers[LoadedModule::kMaxHeaders];
  std::uint64_t bytes = own.header_count * sizeof *headers;
  return copy_memory(Reading::kByKernel, headers, own.headers_at, bytes) &&
         hash_of(headers, own.header_count) == own.headers_hash;
}

Calls Modules::decide_calls(std::uint32_t i) {
  const Private& own = own_[i];
  Calls calls = Calls::kUnwanted;
  if (!is_current(i)) return calls;
  constexpr char kOperatorNew[] = "_Znwm";
  char program_path[256] = {};
  const char* path = own.entry == nullptr ? program_path : own.entry->l_name;
  if (own.entry == nullptr) read_program_path(program_path);
  Image image{
      rows_[i].bias, reinterpret_cast<const Elf64_Phdr*>(own.headers_at), own.header_count, {}};
  if (!wanted_->is_given() || wanted_->matches(path)) {
    calls = Calls::kWanted;
  } else if (own.entry != nullptr && Symbols(image).find(kOperatorNew) != 0) {
    calls = Calls::kOfCaller;
  }
  __atomic_store_n(&own_[i].calls, calls, __ATOMIC_RELAXED);
  return calls;
}

bool Modules::add(Reading reading, const LoadedModule& module, RuleCache& rules,
                  StackTrie& stacks) {
  ModuleRow row;
  if (!read_row(reading, module, row)) return false;
  std::uint32_t i = find_same(row), used = header_->used_modules;
  own_[i].seen = updates_;
  if (row.end == 0 || (i != 0 && !is_closed(i))) return true;
  if (i == 0 && used == header_->modules.count) {
    __atomic_store_n(&is_full_, true, __ATOMIC_RELAXED);
    return true;
  }
  // Generated code, or a module that is closed by now, may have been here before. For the first
  // update, nothing has been looked up yet.
  if (updates_ > 1) {
    close(rules, stacks, [&row](const ModuleRow& other) {
      return other.start < row.end && row.start < other.end;
    });
    rules.forget(row.start, row.end);
  }
  if (i == 0) {
    i = used;
    rows_[i] = row;
  }
  const Image& image = module.image;
  bool is_program = module.entry == nullptr;
  bool was_at_start = updates_ == 1 && header_->options.way_in != WayIn::kAttach;
  own_[i] = {read_unwind_tables(image),
             module.entry,
             module.headers_at,
             hash_of(image.headers, image.header_count),
             static_cast<std::uint32_t>(image.header_count),
             is_program || was_at_start || !is_readable_,
             updates_,
             0,
             Calls::kUndecided};
  __atomic_store_n(&rows_[i].closed, 0, __ATOMIC_RELEASE);
  if (i == used) __atomic_store_n(&header_->used_modules, used + 1, __ATOMIC_RELEASE);
  return true;
}

// The first update reads plainly: nothing is closed before the program starts, and while a recorder
// is injected, a fault ends only the process that injects it.
bool Modules::update_now(RuleCache& rules, StackTrie& stacks) {
  std::uint64_t word;
  if (updates_ == 0) is_readable_ = copy_memory(Reading::kByKernel, &word, own_base(), sizeof word);
  Reading reading = updates_ == 0 ? Reading::kPlain : Reading::kByKernel;
  ++updates_;
  bool is_complete = each_loaded(reading, link_map_, [&](const LoadedModule& module) {
    return add(reading, module, rules, stacks);
  });
  if (is_complete) close(rules, stacks, [](const ModuleRow&) { return true; });
  return is_complete;
}

// Other threads are waited for while they update, or while they load or close a module; but not for
// ever, since they may be waiting for this one.
bool Modules::update(RuleCache& rules, StackTrie& stacks) {
  constexpr int kMaxTries = 50, kMaxWaits = 1000;
  constexpr long kPause = 100'000;
  std::uint64_t own = arch::thread_pointer();
  for (int tries = 0, waits = 0; tries < kMaxTries && waits < kMaxWaits; ++waits) {
    if (is_confined() || (!is_readable_ && updates_ != 0)) return false;
    std::uint64_t owner = 0;
    if (__atomic_compare_exchange_n(&updating_, &owner, own, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
      bool is_complete = update_now(rules, stacks);
      end_update();
      if (is_complete) return true;
      ++tries;
    }
    if (owner == own) return false;  // this is a signal handler
    sleep_nanoseconds(kPause);
  }
  return false;
}

}  // namespace reachscan::recorder
