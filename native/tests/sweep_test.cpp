// The sweeper as a whole, from the control block to the last record.
#include "sweep.hpp"

#include <elf.h>

#include <cstring>
#include <map>

namespace reachscan::tests {
namespace {

constexpr uint64_t kOther = kWorld + (4ull << 30);  // another module

CASE(what_nothing_points_to_is_a_leak) {
  for (const Release& release : releases()) {
    context = release.name;
    Sweep sweep(release.name);
    sweep.run();
    sweep.check_leaks(sweep.all());
    std::vector<wire::Phase> phases{wire::kEnumerate, wire::kMark, wire::kCollect};
    CHECK(sweep.host.phases == phases);
    CHECK_EQ(sweep.host.control.totals.direct, sweep.scene.blocks.size());
  }
}

CASE(roots_of_every_kind_keep_blocks) {
  Sweep sweep("2.43");
  Scene& scene = sweep.scene;
  std::vector<uint64_t> keep(scene.leaks.begin(), scene.leaks.begin() + 6);
  scene.memory.put(kModule + 0x20, keep[0]);                       // data of a module
  scene.memory.put(scene.threads[0].sp + 8, keep[1] + 5);          // a stack
  scene.memory.put(scene.threads[0].thread_pointer + 8, keep[2]);  // next to a thread's variables
  sweep.registers = {keep[3], 0};
  scene.memory.put(keep[0], keep[4]);                 // a block
  scene.memory.put(scene.leaks.back() + 8, keep[5]);  // a leak: no root
  sweep.run();
  std::set<uint64_t> expected = sweep.all();
  for (int i = 0; i < 5; ++i) expected.erase(keep[static_cast<std::size_t>(i)]);
  sweep.check_leaks(expected);
  CHECK_EQ(sweep.host.control.totals.direct, expected.size() - 1);
}

// The allocator's own words point to many blocks that nothing uses.
CASE(what_the_allocator_holds_is_no_root) {
  Sweep sweep("2.35");
  Scene& scene = sweep.scene;
  scene.memory.put(kMainArena + scene.release.arena.bins + 0x100, scene.leaks[0]);
  scene.memory.put(scene.thread_arena + 0x800, scene.leaks[1]);
  scene.memory.put(scene.cached[1] + 16, scene.leaks[2]);
  scene.memory.put(scene.main_top + 0x100, scene.leaks[3]);
  sweep.run();
  sweep.check_leaks(sweep.all());
}

CASE(the_heap_can_be_listed) {
  Sweep sweep("2.35");
  sweep.host.control.task = abi::Task::kListBlocks;
  sweep.registers = {sweep.scene.leaks[0]};
  sweep.run();
  sweep.check_leaks(sweep.all());
  for (const Leak& leak : sweep.host.leaks()) CHECK_EQ(leak.parent, wire::kDirect);
}

CASE(what_was_found_is_described) {
  Sweep sweep("2.35");
  sweep.run();
  Frame heap = sweep.host.frames(wire::kHeap).at(0);
  CHECK_EQ(std::string(heap.payload.begin() + 4, heap.payload.begin() + 14),
           std::string("glibc 2.99"));
  CHECK_EQ(heaps::word(reinterpret_cast<uint64_t>(heap.payload.data()) + 14),
           sweep.scene.blocks.size());
  Frame regions = sweep.host.frames(wire::kRegions).at(0);
  CHECK_EQ(regions.payload.size() % 24, 4u);
  std::map<uint32_t, unsigned> kinds;
  for (std::size_t at = 4; at < regions.payload.size(); at += 24)
    ++kinds[heaps::load<uint32_t>(reinterpret_cast<uint64_t>(regions.payload.data()) + at + 16)];
  CHECK(kinds == (std::map<uint32_t, unsigned>{
                     {wire::kProgramBreak, 2}, {wire::kThreadHeap, 2}, {wire::kMapped, 5}}));
  CHECK(sweep.host.frames(wire::kWarning).empty());
}

CASE(missing_mapped_blocks_are_warned_about) {
  Sweep sweep("2.35");
  sweep.scene.set_mapped(6, 1 << 20);
  sweep.run();
  CHECK_EQ(sweep.host.frames(wire::kWarning).size(), 1u);
  sweep.check_leaks(sweep.all());
}

// `stored`: the name as the compiler writes it, with an asterisk if the class is local to a file.
void check_class_is_named(const char* stored) {
  Sweep sweep("2.35");
  Memory& memory = sweep.scene.memory;
  uint64_t type = kConstants + 0x200, name = kConstants + 0x300, vtable = kConstants + 0x410;
  memory.put(vtable - 8, type);
  memory.put(vtable, kCode + 0x10);
  memory.put(type + 8, name);
  std::memcpy(reinterpret_cast<void*>(name), stored, std::strlen(stored) + 1);
  memory.put(sweep.scene.leaks[0], vtable);
  memory.put(sweep.scene.leaks[1], kConstants + 0x500);  // not a vtable
  sweep.run();
  std::vector<Frame> frames = sweep.host.frames(wire::kTypes);
  CHECK_EQ(frames.size(), 1u);
  auto at = reinterpret_cast<uint64_t>(frames[0].payload.data());
  CHECK_EQ(heaps::word(at + 4), vtable);
  CHECK_EQ(std::string(frames[0].payload.begin() + 16, frames[0].payload.end()),
           std::string("N3app4NodeE"));
}

CASE(classes_are_named) {
  check_class_is_named("N3app4NodeE");
  check_class_is_named("*N3app4NodeE");
}

CASE(a_thread_inside_the_allocator_is_refused) {
  Sweep sweep("2.35");
  sweep.scene.memory.store<uint32_t>(kMainArena, 1);
  CHECK(sweep.refusal().refusal == abi::Refusal::kAllocatorBusy);
  CHECK_EQ(sweep.host.control.hint.mutexes[0], kMainArena);
}

CASE(a_damaged_heap_is_refused) {
  Sweep sweep("2.35");
  sweep.scene.memory.put(sweep.scene.leaks[1] - 8, 0x1001);
  Refused refused = sweep.refusal();
  CHECK(refused.refusal == abi::Refusal::kLayoutUnknown);
  CHECK(!refused.reason.empty());
  CHECK(sweep.host.leaks().empty());
}

CASE(a_heap_that_contradicts_itself_is_tried_again_while_a_thread_runs) {
  for (bool asleep : {false, true}) {
    Sweep sweep("2.35");
    sweep.scene.memory.put(sweep.scene.leaks[1] - 8, 0x1001);
    for (abi::Thread& thread : sweep.scene.threads)
      if (asleep) thread.sleep = abi::Sleep::kOtherwise;
    sweep.host.control.may_repeat = 1;
    abi::Refusal expected = asleep ? abi::Refusal::kLayoutUnknown : abi::Refusal::kAllocatorBusy;
    CHECK(sweep.refusal().refusal == expected);
  }
}

CASE(no_known_allocator_is_refused) {
  Sweep sweep("2.35");
  sweep.scene.memory.put(kMainArena + sweep.scene.release.arena.next, 0);
  CHECK(sweep.refusal().refusal == abi::Refusal::kLayoutUnknown);
}

CASE(too_little_memory_is_refused) {
  for (uint64_t limit = 1; limit < 1ull << 40; limit *= 4) {
    Sweep sweep("2.35");
    sweep.host.memory_limit = limit;
    try {
      sweep.run();
      CHECK(sweep.host.finished);
    } catch (const Refused& refused) {
      CHECK(refused.refusal == abi::Refusal::kNoMemory);
    }
  }
}

// A module with one dynamic symbol, as the loader leaves it.
void add_module(Memory& memory, const char* symbol, uint32_t hash, bool defined) {
  constexpr uint64_t kName = 0x40;  // in the string table
  memory.map(kOther, 2 * kPage, wire::kRead, abi::kFileBacked, kLibrary + 5);
  auto* header = reinterpret_cast<Elf64_Ehdr*>(kOther);
  std::memcpy(header->e_ident, ELFMAG, SELFMAG);
  header->e_type = ET_DYN;
  header->e_phoff = sizeof *header;
  header->e_phnum = 1;
  auto* segment = reinterpret_cast<Elf64_Phdr*>(kOther + sizeof *header);
  segment->p_type = PT_DYNAMIC;
  segment->p_vaddr = 0x200;
  uint64_t table = kOther + 0x300, symbols = kOther + 0x400, strings = kOther + 0x500;
  uint64_t entries[] = {DT_SYMTAB, symbols,   DT_STRTAB, strings, DT_GNU_HASH,
                        table,     DT_SONAME, kName,     DT_NULL, 0};
  std::memcpy(reinterpret_cast<void*>(kOther + 0x200), entries, sizeof entries);
  // One bucket, first symbol 1, one word of Bloom filter; then the bucket and its chain.
  uint32_t words[] = {1, 1, 1, 0, ~0u, ~0u, 1, hash | 1};
  std::memcpy(reinterpret_cast<void*>(table), words, sizeof words);
  auto* entry = reinterpret_cast<Elf64_Sym*>(symbols + sizeof(Elf64_Sym));
  entry->st_name = 1;
  entry->st_shndx = defined ? 12 : SHN_UNDEF;
  std::memcpy(reinterpret_cast<void*>(strings + 1), symbol, std::strlen(symbol) + 1);
  std::strcpy(reinterpret_cast<char*>(strings + kName), "libother.so.1");
}

uint32_t gnu_hash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != 0; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

CASE(another_provider_of_malloc_is_named) {
  Sweep sweep("2.35");
  add_module(sweep.scene.memory, "malloc", gnu_hash("malloc"), true);
  sweep.run();
  sweep.check_leaks(sweep.all());
  Frame warning = sweep.host.frames(wire::kWarning).at(0);
  CHECK(std::string(warning.payload.begin(), warning.payload.end())
            .find("malloc of libother.so.1 is not understood") != std::string::npos);
}

CASE(if_all_is_from_another_provider_of_malloc_it_is_refused) {
  Sweep sweep("2.35");
  add_module(sweep.scene.memory, "malloc", gnu_hash("malloc"), true);
  sweep.scene.memory.put(kMainArena + sweep.scene.release.arena.next, 0);
  Refused refused = sweep.refusal();
  CHECK(refused.refusal == abi::Refusal::kLayoutUnknown);
  CHECK_EQ(refused.address, kOther);
}

CASE(a_user_of_malloc_is_no_provider) {
  for (const char* name : {"malloc", "mallocx"}) {
    Sweep sweep("2.35");
    add_module(sweep.scene.memory, name, gnu_hash("malloc"), std::strlen(name) != 6);
    sweep.run();
    sweep.check_leaks(sweep.all());
  }
}

}  // namespace
}  // namespace reachscan::tests
