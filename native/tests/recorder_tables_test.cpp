// The recorder's tables: whatever is written there is found, with any other contents and any
// reader.
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"
#include "recorder/block_filter.hpp"
#include "recorder/create_tables.hpp"
#include "recorder/live_blocks.hpp"
#include "recorder/live_mappings.hpp"
#include "recorder/stack_trie.hpp"
#include "recorder/tables.hpp"

namespace reachscan::tests {
namespace {

using namespace recorder;

constexpr std::uint64_t kMiB = 1 << 20;

Header* make_tables(std::uint64_t memory, const char* text = "depth=32") {
  Settings settings;
  CHECK(read_settings(text, settings));
  settings.memory = memory;
  Header* header = create_tables(settings, Clock());
  CHECK(header != nullptr);
  CHECK(is_valid(*header, header->bytes));
  return header;
}

// A block's record is a function of its address.
Allocation allocation_at(std::uint64_t address) {
  std::uint64_t hash = address * 0x9e3779b97f4a7c15;
  return {address, hash >> 20, hash >> 30, static_cast<std::uint32_t>(hash >> 36),
          static_cast<std::uint32_t>(hash & 0xffff)};
}

void check_same(const Allocation& a, const Allocation& b) {
  CHECK_EQ(a.address, b.address);
  CHECK_EQ(a.size, b.size);
  CHECK_EQ(a.time_ms, b.time_ms);
  CHECK_EQ(a.node, b.node);
  CHECK_EQ(a.thread, b.thread);
}

CASE(a_record_holds_what_fits_and_the_most_of_what_does_not) {
  Allocation largest{0x10, kMaxSize, kMaxTime, kMaxNodes - 1, kMaxThreads - 1};
  check_same(unpack(0x10, pack(largest)), largest);
  Allocation beyond = largest;
  beyond.size = ~std::uint64_t{0};
  beyond.time_ms = ~std::uint64_t{0};
  check_same(unpack(0x10, pack(beyond)), largest);
  Allocation least{0x10, 0, 0, 0, 0};
  check_same(unpack(0x10, pack(least)), least);
}

CASE(the_parts_fill_the_memory_and_do_not_overlap) {
  for (std::uint64_t memory : {kMiB, 3 * kMiB, 64 * kMiB, 1024 * kMiB}) {
    Header* h = make_tables(memory);
    std::map<std::uint64_t, std::uint64_t> parts;
    parts[0] = sizeof(Header);
    parts[h->nodes.offset] = h->nodes.count * sizeof(Node);
    parts[h->threads.offset] = h->threads.count * sizeof(ThreadRow);
    parts[h->modules.offset] = h->modules.count * sizeof(ModuleRow);
    parts[h->functions.offset] = h->functions.count * sizeof(PythonFunction);
    parts[h->buckets.offset] = h->buckets.count * sizeof(Bucket);
    parts[h->records.offset] = h->records.count * sizeof(Record);
    CHECK_EQ(parts.size(), 7u);
    std::uint64_t end = 0;
    for (auto [offset, bytes] : parts) {
      CHECK(offset >= end && offset - end < 2 * 4096);
      end = offset + bytes;
    }
    CHECK(end <= h->bytes && h->bytes - end < 4 * 4096);
    unmap_memory(reinterpret_cast<unsigned char*>(h) - 4096, h->bytes + 2 * 4096);
  }
}

CASE(too_little_memory_makes_no_tables) {
  Settings settings;
  settings.memory = kMiB - 4096;
  CHECK(create_tables(settings, Clock()) == nullptr);
}

CASE(tables_that_point_outside_are_not_valid) {
  Header* h = make_tables(kMiB);
  for (Part Header::*part : {&Header::buckets, &Header::records, &Header::nodes, &Header::threads,
                             &Header::modules, &Header::functions}) {
    Header damaged = *h;
    (damaged.*part).offset = h->bytes;
    CHECK(!is_valid(damaged, h->bytes));
    damaged = *h;
    (damaged.*part).count = ~std::uint64_t{0} / 8;
    CHECK(!is_valid(damaged, h->bytes));
  }
  CHECK(!is_valid(*h, h->bytes - 1));
}

CASE(records_are_those_of_a_map) {
  Tables tables(make_tables(kMiB));
  LiveBlocks blocks(tables);
  std::map<std::uint64_t, Allocation> model;
  std::mt19937_64 random(1);
  std::uint64_t most = tables.header().records.count * 3 / 4;
  for (int step = 0; step < 300'000; ++step) {
    // A dense heap, and some blocks far apart.
    std::uint64_t address = random() % 8 == 0 ? 0x7f0000000000 + random() % 4096 * 0x21000
                                              : 0x5500'0000'0000 + random() % 60'000 * 16;
    Allocation was;
    bool is_there = model.contains(address);
    CHECK_EQ(tables.find(address, was), is_there);
    if (is_there) {
      check_same(was, model[address]);
      CHECK(blocks.remove(address, was));
      check_same(was, model[address]);
      model.erase(address);
    } else if (model.size() < most) {
      model[address] = allocation_at(address);
      CHECK(blocks.insert(model[address]));
    }
  }
  std::size_t found = 0;
  tables.each([&](const Allocation& a) {
    ++found;
    check_same(a, model.at(a.address));
  });
  CHECK_EQ(found, model.size());
  for (auto [address, allocation] : model) CHECK(blocks.remove(address, allocation));
  for (std::uint64_t i = 0; i < tables.header().buckets.count; ++i)
    CHECK_EQ(tables.buckets()[i].passed, 0u);
}

CASE(a_filter_denies_no_recorded_block_and_most_others) {
  std::vector<std::uint32_t> memory(BlockFilter::kCounts);
  BlockFilter filter;
  CHECK(!filter.may_contain(0x1000));
  filter.place(memory.data(), true);
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> in;
  for (int i = 0; i < 1000; ++i) {
    in.push_back(random() % (std::uint64_t{1} << 47) & ~std::uint64_t{15});
    filter.add(in.back());
  }
  int passed = 0;
  for (int i = 0; i < 1000; ++i) passed += filter.may_contain(random() >> 17) ? 1 : 0;
  CHECK(passed < 100);
  while (!in.empty()) {
    for (std::uint64_t address : in) CHECK(filter.may_contain(address));
    for (int i = 0; i < 100; ++i, in.pop_back()) filter.remove(in.back());
  }
  for (std::uint32_t count : memory) CHECK_EQ(count, 0u);
}

CASE(a_filter_for_records_of_all_blocks_denies_none) {
  std::vector<std::uint32_t> memory(BlockFilter::kCounts);
  BlockFilter filter;
  filter.place(memory.data(), false);
  filter.add(0x1000);
  filter.remove(0x1000);
  CHECK(filter.may_contain(0x1000) && filter.may_contain(0x7fff0000));
}

CASE(full_tables_take_no_more_and_lose_nothing) {
  Tables tables(make_tables(kMiB));
  LiveBlocks blocks(tables);
  std::vector<std::uint64_t> in;
  for (std::uint64_t address = 0x1000; blocks.insert(allocation_at(address)); address += 48)
    in.push_back(address);
  CHECK(in.size() > tables.header().records.count * 8 / 10);
  Allocation was;
  for (std::uint64_t address : in) {
    CHECK(tables.find(address, was));
    check_same(was, allocation_at(address));
  }
  CHECK(blocks.remove(in.front(), was));
  CHECK(!tables.find(in.front(), was));
}

// Pages are counted by what is in them: memory that was never written to takes none.
CASE(few_blocks_and_stacks_take_few_pages) {
  Tables tables(make_tables(64 * kMiB));
  LiveBlocks blocks(tables);
  StackTrie trie(tables);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    CHECK(blocks.insert(allocation_at(0x1000 + i * 64)));
    CHECK(trie.intern(0, 0x1000 + i % 500, [](std::uint64_t) { return 0u; }) != 0);
  }
  constexpr std::uint64_t kBytes = 4096, kWords = kBytes / sizeof(std::uint64_t);
  const auto* words = reinterpret_cast<const std::uint64_t*>(&tables.header());
  std::size_t pages = 0;
  for (std::uint64_t page = 0; page < tables.header().bytes / kBytes; ++page) {
    const std::uint64_t* first = words + page * kWords;
    if (std::any_of(first, first + kWords, [](std::uint64_t word) { return word != 0; })) ++pages;
  }
  CHECK(pages <= 40);
}

// What was recorded in an early generation is found and removed when others have filled up.
CASE(nothing_is_lost_when_the_next_generation_begins) {
  Tables tables(make_tables(kMiB));
  LiveBlocks blocks(tables);
  Allocation was;
  CHECK(blocks.insert(allocation_at(0x10)));
  std::uint64_t first = tables.header().records.count / 2;
  for (std::uint64_t i = 1; i <= first; ++i) CHECK(blocks.insert(allocation_at(0x10 + i * 48)));
  CHECK(tables.find(0x10, was));
  CHECK(blocks.remove(0x10, was) && !tables.find(0x10, was));
  for (std::uint64_t i = 1; i <= first; ++i) CHECK(blocks.remove(0x10 + i * 48, was));
  std::size_t left = 0;
  tables.each([&](const Allocation&) { ++left; });
  CHECK_EQ(left, 0u);
}

// Reads like the sweeper, but with writers active: every valid record must be whole.
CASE(a_reader_never_sees_half_of_a_record) {
  Tables tables(make_tables(kMiB));
  std::atomic<bool> end = false;
  auto write = [&](std::uint64_t writer) {
    LiveBlocks blocks(tables);
    std::mt19937_64 random(writer);
    Allocation was;
    while (!end) {
      std::uint64_t address = (random() % 1500 * 2 + writer) * 16 + 0x10000;
      if (!blocks.remove(address, was)) CHECK(blocks.insert(allocation_at(address)));
    }
  };
  std::thread one(write, 0), two(write, 1);
  std::size_t seen = 0;
  while (seen < 200'000)
    tables.each([&](const Allocation& a) {
      // Its slot may have been reused since its key was read, but only by a whole record.
      Allocation again;
      if (tables.find(a.address, again) && again.size == a.size) ++seen;
    });
  end = true;
  one.join();
  two.join();
  tables.each([](const Allocation& a) { check_same(a, allocation_at(a.address)); });
}

CASE(stacks_share_their_outer_frames) {
  Tables tables(make_tables(kMiB));
  StackTrie trie(tables);
  auto module_of = [](std::uint64_t pc) { return static_cast<std::uint32_t>(pc >> 12); };
  std::uint32_t outer = trie.intern(0, 0x1111, module_of);
  std::uint32_t inner = trie.intern(outer, 0x2222, module_of);
  CHECK(outer != 0 && inner != 0 && outer != inner);
  CHECK_EQ(trie.intern(0, 0x1111, module_of), outer);
  CHECK_EQ(trie.intern(outer, 0x2222, module_of), inner);
  CHECK(trie.intern(inner, 0x2222, module_of) != inner);
  std::vector<std::uint64_t> pcs, modules;
  tables.each_frame(inner, [&](std::uint32_t, const Node& node) {
    pcs.push_back(node.pc);
    modules.push_back(Tables::module_of(node));
  });
  CHECK((pcs == std::vector<std::uint64_t>{0x2222, 0x1111}));
  CHECK((modules == std::vector<std::uint64_t>{2, 1}));
}

CASE(nodes_of_a_closed_module_are_not_found_again) {
  Tables tables(make_tables(kMiB));
  StackTrie trie(tables);
  auto first = [](std::uint64_t) { return 1u; };
  auto second = [](std::uint64_t) { return 2u; };
  std::uint32_t before = trie.intern(0, 0x1500, first), other = trie.intern(0, 0x2500, first);
  trie.close(0x1000, 0x2000);
  CHECK(Tables::is_closed(tables.nodes()[before]));
  CHECK(!Tables::is_closed(tables.nodes()[other]));
  std::uint32_t after = trie.intern(0, 0x1500, second);
  CHECK(after != before);
  CHECK_EQ(Tables::module_of(tables.nodes()[after]), 2u);
  CHECK_EQ(Tables::module_of(tables.nodes()[before]), 1u);
  CHECK_EQ(trie.intern(0, 0x2500, second), other);
}

// A plugin that is built again and again is loaded at the same place each time.
CASE(any_number_of_modules_are_at_one_place_in_succession) {
  constexpr std::uint32_t kModules = 1000;
  Tables tables(make_tables(16 * kMiB));
  StackTrie trie(tables);
  std::uint32_t asked = 0, other = trie.intern(0, 0x2500, [](std::uint64_t) { return 1u; });
  for (std::uint32_t module = 1; module <= kModules; ++module) {
    auto module_of = [&](std::uint64_t) { return ++asked, module; };
    std::uint32_t node = trie.intern(0, 0x1500, module_of);
    CHECK(node != 0);
    CHECK_EQ(Tables::module_of(tables.nodes()[node]), module);
    CHECK_EQ(trie.intern(0, 0x1500, module_of), node);
    trie.close(0x1000, 0x2000);
    CHECK_EQ(trie.intern(0, 0x1500, module_of), node);  // loaded again
    trie.close(0x1000, 0x2000);
  }
  CHECK(asked <= 3 * kModules);
  CHECK_EQ(trie.intern(0, 0x2500, [](std::uint64_t) { return 1u; }), other);
}

// The last instruction of a module may be a call that does not return.
CASE(a_module_is_closed_up_to_the_byte_behind_it) {
  Tables tables(make_tables(kMiB));
  StackTrie trie(tables);
  auto module_of = [](std::uint64_t) { return 1u; };
  std::uint32_t before = trie.intern(0, 0x1000, module_of);
  std::uint32_t first = trie.intern(0, 0x1001, module_of);
  std::uint32_t last = trie.intern(0, 0x2000, module_of);
  std::uint32_t after = trie.intern(0, 0x2001, module_of);
  trie.close(0x1000, 0x2000);
  CHECK(!Tables::is_closed(tables.nodes()[before]));
  CHECK(Tables::is_closed(tables.nodes()[first]));
  CHECK(Tables::is_closed(tables.nodes()[last]));
  CHECK(!Tables::is_closed(tables.nodes()[after]));
}

CASE(a_full_trie_says_so) {
  Tables tables(make_tables(kMiB));
  StackTrie trie(tables);
  std::uint32_t number = 1;
  std::uint64_t made = 0;
  while (number != 0) number = trie.intern(0, 0x1000 + made++, [](std::uint64_t) { return 0u; });
  CHECK(made > tables.header().nodes.count / 2);
}

// The mapping that each page belongs to, as its serial number in call order, 0 for none.
using Pages = std::vector<std::uint32_t>;

Pages pages_of(const Tables& tables, std::uint64_t count) {
  Pages found(count);
  tables.each_mapping([&](const MappingRow& row) {
    CHECK_EQ(unpack(row).node, row.serial);
    for (std::uint64_t page = row.start; page < row.end; ++page) {
      CHECK_EQ(found.at(page - 1), 0u);
      found.at(page - 1) = row.serial;
    }
  });
  return found;
}

CASE(mappings_are_cut_split_and_replaced_as_pages_are) {
  constexpr std::uint64_t kPages = 60;
  Tables tables(make_tables(kMiB, "mmap=1"));
  LiveMappings mappings(tables);
  Pages expected(kPages);
  std::mt19937 random(7);
  for (std::uint32_t serial = 0, i = 0; i < 5000; ++i) {
    std::uint64_t first = random() % kPages, end = first + 1 + random() % (kPages - first);
    std::uint32_t owner = 0;
    LiveMappings::Locked locked(mappings);
    if (random() % 2 == 0) {
      owner = ++serial;
      CHECK(mappings.insert(1 + first, 1 + end, kMapped, {0, 0, 5, serial, 3}));
    } else {
      CHECK(mappings.cut(1 + first, 1 + end));
    }
    for (std::uint64_t page = first; page < end; ++page) expected[page] = owner;
    CHECK(pages_of(tables, kPages) == expected);
  }
}

CASE(a_mapping_without_room_is_told) {
  Tables tables(make_tables(kMiB, "mmap=1"));
  LiveMappings mappings(tables);
  std::uint64_t room = tables.header().mappings.count;
  for (std::uint64_t i = 1; i <= room; ++i)
    CHECK(mappings.insert(10 * i, 10 * i + 9, kMapped, {0, 0, 0, 1, 1}));
  CHECK(!mappings.insert(5, 6, kMapped, {0, 0, 0, 1, 1}));
  CHECK(!mappings.cut(12, 13));
  CHECK(mappings.cut(20, 29));
  CHECK(mappings.insert(5, 6, kMapped, {0, 0, 0, 1, 1}));
}

CASE(threads_share_the_table_of_mappings) {
  Tables tables(make_tables(kMiB, "mmap=1"));
  LiveMappings mappings(tables);
  std::vector<std::thread> threads;
  for (std::uint64_t own = 1; own <= 4; ++own)
    threads.emplace_back([&mappings, own] {
      for (int i = 0; i < 20'000; ++i) {
        LiveMappings::Locked locked(mappings);
        CHECK(mappings.insert(own << 32, (own << 32) + 9, kMapped, {0, 0, 0, 1, 1}));
        CHECK(mappings.cut((own << 32) + 3, (own << 32) + 4));
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::map<std::uint64_t, std::uint64_t> found;
  tables.each_mapping([&](const MappingRow& row) { found[row.start] = row.end; });
  CHECK_EQ(found.size(), 8u);
  for (std::uint64_t own = 1; own <= 4; ++own) {
    CHECK_EQ(found.at(own << 32), (own << 32) + 3);
    CHECK_EQ(found.at((own << 32) + 4), (own << 32) + 9);
  }
}

}  // namespace
}  // namespace reachscan::tests
