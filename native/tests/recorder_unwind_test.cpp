// Rules from unwind tables: those of this program, some written by hand, and damaged ones.
#include <link.h>

#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "recorder/unwind/eh_frame.hpp"
#include "recorder/unwind/rule_cache.hpp"
#include "recorder/unwind/unwinder.hpp"

namespace reachscan::tests {
namespace {

using namespace recorder;

constexpr std::uint64_t kFunction = 0x1000;  // offset of its code from the tables

// An index with one entry, one common entry, and one function of 0x100 bytes.
class Module {
 public:
  explicit Module(const std::vector<std::uint8_t>& program,
                  const std::vector<std::uint8_t>& common = {0x0c, 7, 8, 0x90, 1}) {
    // Version, and the encodings of frames, count and table.
    bytes_ = {1, 0x1b, 0x03, 0x3b};
    number(20 - 4);  // .eh_frame, relative to this place
    number(1);
    number(kFunction);
    entry_of_function_ = bytes_.size();
    number(0);
    std::size_t start = entry(0, {1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b}, common);
    std::size_t at = bytes_.size();
    write(entry_of_function_, static_cast<std::uint32_t>(at));
    std::size_t length = begin();
    number(static_cast<std::uint32_t>(bytes_.size() - start));
    number(static_cast<std::uint32_t>(kFunction - bytes_.size()));
    number(0x100);
    bytes_.push_back(0);  // no augmentation data
    append(program);
    finish(length);
    number(0);
  }

  Rule rule(std::uint64_t offset) const {
    auto start = reinterpret_cast<std::uint64_t>(bytes_.data());
    return find_rule({start, start, start + bytes_.size()}, start + kFunction + offset + 1);
  }

  std::vector<std::uint8_t>& bytes() { return bytes_; }

 private:
  std::size_t entry(std::uint32_t id, const std::vector<std::uint8_t>& head,
                    const std::vector<std::uint8_t>& program) {
    std::size_t start = bytes_.size(), length = begin();
    number(id);
    append(head);
    append(program);
    finish(length);
    return start;
  }

  std::size_t begin() {
    number(0);
    return bytes_.size();
  }

  void finish(std::size_t begun) {
    while ((bytes_.size() - begun) % 8 != 4) bytes_.push_back(0);
    write(begun - 4, static_cast<std::uint32_t>(bytes_.size() - begun));
  }

  void append(const std::vector<std::uint8_t>& more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
  }

  void number(std::uint64_t value) {
    bytes_.resize(bytes_.size() + 4);
    write(bytes_.size() - 4, static_cast<std::uint32_t>(value));
  }

  void write(std::size_t at, std::uint32_t value) { std::memcpy(&bytes_[at], &value, 4); }

  std::vector<std::uint8_t> bytes_;
  std::size_t entry_of_function_ = 0;
};

void check_rule(Rule rule, RuleKind kind, std::uint64_t offset, std::uint64_t saved_fp) {
  CHECK(rule.kind() == kind);
  CHECK_EQ(rule.offset(), offset);
  CHECK_EQ(rule.saved_fp(), saved_fp);
}

CASE(a_rule_holds_frames_of_megabytes_or_nothing) {
  check_rule(Rule::make(RuleKind::kFromSp, 8, 0), RuleKind::kFromSp, 8, 0);
  check_rule(Rule::make(RuleKind::kFromFp, 8 << 20, 2040), RuleKind::kFromFp, 8 << 20, 2040);
  CHECK(Rule::make(RuleKind::kFromSp, 32 << 20, 0).kind() == RuleKind::kUnknown);
  CHECK(Rule::make(RuleKind::kFromSp, 12, 0).kind() == RuleKind::kUnknown);
  CHECK(Rule::make(RuleKind::kFromSp, -8, 0).kind() == RuleKind::kUnknown);
  CHECK(Rule::make(RuleKind::kFromSp, 16, 4096).kind() == RuleKind::kUnknown);
}

CASE(a_function_that_pushes_its_frame_pointer) {
  // One byte on: offset 16, rbp at -16. Three more: from rbp. At 0x20: back to rsp + 8.
  Module module({0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x5c, 0x0c, 7, 8, 0xc6});
  check_rule(module.rule(0), RuleKind::kFromSp, 8, 0);
  check_rule(module.rule(1), RuleKind::kFromSp, 16, 16);
  check_rule(module.rule(4), RuleKind::kFromFp, 16, 16);
  check_rule(module.rule(0x1f), RuleKind::kFromFp, 16, 16);
  check_rule(module.rule(0x20), RuleKind::kFromSp, 8, 0);
  CHECK(module.rule(0x100).kind() == RuleKind::kUnknown);
}

CASE(rows_that_are_remembered) {
  Module module({0x41, 0x0e, 16, 0x0a, 0x41, 0x0e, 64, 0x41, 0x0b, 0x41, 0x0e, 24});
  check_rule(module.rule(2), RuleKind::kFromSp, 64, 0);
  check_rule(module.rule(3), RuleKind::kFromSp, 16, 0);
  check_rule(module.rule(4), RuleKind::kFromSp, 24, 0);
}

CASE(a_realigned_frame) {
  // The address is the word at rbp - 16 (breg6 -16, deref); rbp is saved at -32.
  Module module({0x0f, 3, 0x76, 0x70, 0x06, 0x86, 4});
  check_rule(module.rule(0), RuleKind::kSavedAtFp, 16, 32);
}

CASE(the_outermost_function) { CHECK(Module({0x07, 16}).rule(0).kind() == RuleKind::kEnd); }

CASE(what_is_not_followed_is_not_known) {
  CHECK(Module({0x0c, 3, 16}).rule(0).kind() == RuleKind::kUnknown);       // from rbx
  CHECK(Module({0x0f, 2, 0x77, 8}).rule(0).kind() == RuleKind::kUnknown);  // expression of rsp
  CHECK(Module({0x09, 6, 3}).rule(0).kind() == RuleKind::kUnknown);        // rbp in rbx
  CHECK(Module({0x90, 2}).rule(0).kind() == RuleKind::kUnknown);           // elsewhere
  CHECK(Module({0x3e, 0, 0, 0}).rule(0).kind() == RuleKind::kUnknown);     // no instruction
  CHECK(Module({0x0b}).rule(0).kind() == RuleKind::kUnknown);              // nothing remembered
}

// Whatever the tables say, nothing outside them is read. The sanitizer checks it.
CASE(damaged_tables_are_survived) {
  std::mt19937 random(1);
  const Module whole({0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x5c, 0x0c, 7, 8, 0xc6});
  for (int round = 0; round < 100'000; ++round) {
    Module module = whole;
    for (unsigned i = 0; i <= random() % 4; ++i)
      module.bytes()[random() % module.bytes().size()] = static_cast<std::uint8_t>(random());
    module.rule(random() % 0x20);
  }
}

int find_own(dl_phdr_info* info, std::size_t, void* found) {
  auto& tables = *static_cast<UnwindTables*>(found);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    std::uint64_t start = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_EH_FRAME) tables.index = start;
  }
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    std::uint64_t start = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && tables.index - start < header.p_memsz)
      tables = {tables.index, start, start + header.p_memsz};
  }
  return 1;
}

__attribute__((noinline)) std::uint64_t return_address_of_this() {
  return reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
}

CASE(the_rules_of_this_program_lead_out_of_this_function) {
  UnwindTables tables;
  dl_iterate_phdr(find_own, &tables);
  CHECK(tables.index != 0);
  Rule rule = find_rule(tables, return_address_of_this());
  CHECK(rule.kind() == RuleKind::kFromFp || rule.kind() == RuleKind::kFromSp);
  // The index starts with the location of the tables; static programs have none.
  std::uint64_t at = tables.index + 4;
  std::int32_t distance;
  std::memcpy(&distance, reinterpret_cast<const void*>(at), sizeof distance);
  UnwindTables without_index{0, at + static_cast<std::uint64_t>(std::int64_t{distance}),
                             tables.end};
  CHECK_EQ(find_rule(without_index, return_address_of_this()).bits(), rule.bits());
}

// This one could not look for any: it has no loader's list.
CASE(no_module_is_looked_for_that_holds_a_python_function) {
  Unwinder unwinder;
  CHECK_EQ(unwinder.module_of(python_pc(1, 2)), 0u);
}

CASE(the_cache_gives_back_what_was_put_in_until_it_is_forgotten) {
  std::vector<std::uint64_t> memory(RuleCache::kBytes / 8);
  RuleCache cache(memory.data());
  Rule rule = Rule::make(RuleKind::kFromSp, 48, 16), found;
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    std::uint64_t pc = (random() & 0x7fff'ffff'ffff) | 1 << 12;
    CHECK(!cache.find(pc, found));
    cache.put(pc, rule);
    CHECK(cache.find(pc, found) && found.bits() == rule.bits());
    cache.put(pc ^ 1 << 30, rule);
    if (i % 1000 == 0) {
      cache.forget(pc - 1, pc);
      CHECK(!cache.find(pc, found));
    }
  }
}

}  // namespace
}  // namespace reachscan::tests
