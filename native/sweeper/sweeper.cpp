// The program that runs in the frozen clone: enumerates the heap, marks, and reports what stayed
// unmarked. One translation unit, no library, no system call (wire/sweeper_abi.hpp), no relocation.
#include <new>

#include "sweeper/blocks/kinds.hpp"
#include "sweeper/heaps_found.hpp"
#include "sweeper/leaks/doubt.hpp"
#include "sweeper/leaks/suspects.hpp"
#include "sweeper/python/collectible.hpp"
#include "sweeper/python/cut_links.hpp"
#include "sweeper/queries/answer.hpp"
#include "sweeper/roots/mark_reachable.hpp"
#ifndef REACHSCAN_HOSTED
#include "freestanding/runtime.hpp"
#endif

namespace reachscan::sweeper {
namespace {

void send_heap(const char* name, const heaps::Totals& totals, std::size_t arenas,
               std::size_t regions) {
  Record record(wire::kHeap);
  record.str(name).u64(totals.blocks).u64(totals.bytes);
  record.u32(static_cast<uint32_t>(arenas)).u32(static_cast<uint32_t>(regions));
  record.send();
}

void send_heaps(const Heap& heap, const heaps::BlockMap& blocks) {
  if (!heap.is_present()) send_heap("none", {}, 0, 0);
  heap.each_found([](const auto& walker, std::size_t regions) {
    char name[heaps::kNameLength];
    walker.write_name(name);
    send_heap(name, walker.totals, walker.arena_count(), regions);
  });
  send_regions(blocks);
}

void warn_of_lost(const Annotations& annotations) {
  if (annotations.lost() == 0) return;
  send_warning({"annotations-lost",
                "libreachscan had no room to note all blocks that the program says are no leaks; "
                "some of them may be among the leaks"});
}

// What is known about Python's objects.
struct Python {
  explicit Python(const Space& space) : objects(space), types(objects) {}

  PythonObjects objects;
  ObjectTypes types;
};

ObjectTypes* types_of(Python* python) { return python != nullptr ? &python->types : nullptr; }

// Returns null if Python objects get no special treatment.
Python* prepare_python(const Space& space, const heaps::BlockMap& blocks) {
  if (control()->python == 0) return nullptr;
  auto* python = new (map_memory(sizeof(Python))) Python(space);
  CutLinks(space, blocks, python->objects);
  return python;
}

// Everything that a task may need once the heap has been enumerated.
struct Scan {
  const Space& space;
  const Heap& heap;
  heaps::BlockMap& blocks;
  Roots& roots;
  DeferredWords& put_aside;
  Origins& origins;
  Python* python;  // null if not requested
  LeakWriter& writer;
};

Roots find_roots(const Space& space, const Heap& heap, const heaps::BlockMap& blocks) {
  Roots roots(space, blocks, heap.threads());
  heap.each_variable([&roots](heaps::Range range) { roots.exclude(range.start, range.end); });
  heap.each_unclear([&roots](heaps::Range range) { roots.exclude_unclear(range); });
  return roots;
}

// Objects that Python's collector will free are not leaks. Reports their number and size.
void mark_collectible(const Scan& scan) {
  heaps::Totals waiting;
  if (std::size_t unmarked = count_unmarked(scan.blocks))
    waiting = Collectible(scan.space, scan.blocks, scan.python->objects, unmarked).spare();
  Record(wire::kCollectible).u64(waiting.blocks).u64(waiting.bytes).send();
}

void mark_all(const Scan& scan) {
  begin_phase(wire::kMark);
  const heaps::Totals heap = scan.heap.totals();
  const Marker::Amount amount{scan.roots.size() + heap.bytes,
                              heap.blocks == 0 ? 0 : heap.bytes / heap.blocks};
  mark_reachable(scan.space, scan.roots, scan.blocks, scan.put_aside, heap.bytes, amount, nullptr);
  if (scan.python != nullptr) mark_collectible(scan);
  if (control()->only_suspects == 0) return;
  SharedWorklist worklist(scan.blocks, scan.put_aside);
  mark_all_but_suspects(scan.space, scan.blocks, *new_marker(scan.space, scan.blocks, worklist));
}

void collect(const Scan& scan) {
  begin_phase(wire::kCollect);
  collect_all_leaks(scan.space, scan.roots, scan.blocks, scan.put_aside, scan.writer);
}

void list_blocks(const Scan& scan) {
  scan.blocks.each_live([&](uint64_t block) { scan.writer.add(block, wire::kDirect, 0); });
}

KindTable& new_kinds(const Scan& scan) {
  return *new (map_memory(sizeof(KindTable)))
      KindTable(scan.space, scan.blocks, scan.origins, types_of(scan.python));
}

void count_kinds(const Scan& scan) {
  begin_phase(wire::kCollect);
  KindTable& kinds = new_kinds(scan);
  scan.blocks.each_live([&](uint64_t block) { kinds.add(block); });
  kinds.send();
}

// Answers a query about a block that no pointer, or only stale ones, lead to. Everything else that
// is reachable is marked.
void answer_about_candidate(const Scan& scan, const Doubts& doubts, KindTable& kinds,
                            uint64_t block) {
  DoubtPass& second = pass_over_unmarked(scan.space, scan.blocks, doubts);
  second.look(scan.roots, scan.put_aside, doubts.lookalikes);
  send_block(scan.blocks, control()->query, !second.is_lost(block));
  send_sighting(scan.space, scan.blocks, second, kinds, block);
  kinds.add_single(block);
  kinds.send();
  second.collect(scan.writer);
}

// A reachable block is answered by a chain from a root. Any other block is among the leaks, below
// its owners.
void explain(const Scan& scan) {
  uint64_t block = scan.blocks.block_of(control()->query);
  if (block == 0) return send_block(scan.blocks, control()->query, false);
  mark_all(scan);
  begin_phase(wire::kCollect);
  const Doubts doubts = doubt_lookalikes(scan.space, scan.roots, scan.blocks, scan.put_aside);
  KindTable& kinds = new_kinds(scan);
  if (!scan.blocks.is_marked(block)) return answer_about_candidate(scan, doubts, kinds, block);
  scan.blocks.each_marked([&](uint64_t marked) { scan.blocks.clear_mark(marked); });
  ChainSearch search(scan.space, scan.blocks, scan.put_aside, kinds, scan.heap.totals().blocks);
  if (!search.find(scan.roots, block))
    return answer_about_candidate(scan, {doubts.lookalikes, nullptr}, kinds, block);
  send_block(scan.blocks, control()->query, true);
  kinds.add_single(block);
  kinds.send();
}

void find_references(const Scan& scan) {
  mark_all(scan);
  uint64_t block = scan.blocks.block_of(control()->query);
  if (block == 0) return send_block(scan.blocks, control()->query, false);
  begin_phase(wire::kCollect);
  const Doubts doubts = doubt_lookalikes(scan.space, scan.roots, scan.blocks, scan.put_aside);
  KindTable& kinds = new_kinds(scan);
  send_references(scan.space, scan.roots, scan.blocks, kinds, block);
  if (!scan.blocks.is_marked(block)) return answer_about_candidate(scan, doubts, kinds, block);
  send_block(scan.blocks, control()->query, true);
  kinds.add_single(block);
  kinds.send();
}

void perform(abi::Task task, const Scan& scan) {
  switch (task) {
    case abi::Task::kFindLeaks:
      mark_all(scan);
      return collect(scan);
    case abi::Task::kListBlocks:
      return list_blocks(scan);
    case abi::Task::kCountKinds:
      return count_kinds(scan);
    case abi::Task::kExplain:
      return explain(scan);
    case abi::Task::kListSuspects:
      mark_all(scan);
      return send_suspects(scan.space, scan.blocks);
    case abi::Task::kFindReferences:
      return find_references(scan);
  }
}

abi::Totals totals_of(const heaps::Totals& heap, const LeakWriter& writer) {
  return {heap.blocks,        heap.bytes,           writer.leaks.blocks,
          writer.leaks.bytes, writer.direct.blocks, writer.direct.bytes};
}

// Returns null if no allocator keeps them, or for all live blocks, which are too many to ask about.
Backtraces* new_backtraces(Heap& heap, const heaps::BlockMap& blocks) {
  bool for_all =
      control()->task == abi::Task::kCountKinds || control()->task == abi::Task::kListBlocks;
  if (for_all || !heap.keeps_backtraces()) return nullptr;
  auto ask = [](void* all, const heaps::List<uint64_t>& some, AskAllocator::Note note,
                void* context) {
    return static_cast<Heap*>(all)->backtraces(some, note, context).reason;
  };
  return new (map_memory(sizeof(Backtraces))) Backtraces({&heap, ask}, blocks);
}

void warn_of_missing(const Backtraces* backtraces) {
  if (backtraces == nullptr || backtraces->problem() == nullptr) return;
  Sentence sentence;
  sentence.add("some stacks are missing that the allocator may know: ").add(backtraces->problem());
  send_warning({"stacks-missing", sentence.text()});
}

void sweep() {
  open_protection_keys();
  Space all(reinterpret_cast<const abi::Mapping*>(control()->mappings), control()->mapping_count);
  auto* tables = find_guarded<recorder::Header>(all, recorder::kMagic);
  Annotations annotations(all);
  Space space = without(without(all, range_of(tables)), annotations.table());
  begin_phase(wire::kEnumerate);
  HeapsFound found(space, annotations);
  const Heap& heap = found.heap();
  heaps::BlockMap& blocks = found.blocks();
  if (control()->task != abi::Task::kListSuspects) {
    send_heaps(heap, blocks);
    found.send_warnings();
    warn_of_lost(annotations);
  }

  Roots roots = find_roots(space, heap, blocks);
  roots.obey(annotations);
  DeferredWords put_aside(blocks);
  Backtraces* backtraces = new_backtraces(found.heap(), blocks);
  Origins origins(tables, backtraces);
  Python* python = prepare_python(space, blocks);
  // Too large for the stack that the helper created.
  auto* writer =
      new (map_memory(sizeof(LeakWriter))) LeakWriter(space, blocks, origins, types_of(python));
  perform(control()->task, {space, heap, blocks, roots, put_aside, origins, python, *writer});
  writer->finish();
  if (control()->task != abi::Task::kListSuspects) {
    origins.send();
    warn_of_missing(backtraces);
  }
  control()->totals = totals_of(heap.totals(), *writer);
  request(abi::Request::kFinished);
}

}  // namespace
}  // namespace reachscan::sweeper

#ifdef __clang__
#define REACHSCAN_ENTRY gnu::used
#else
#define REACHSCAN_ENTRY gnu::externally_visible
#endif

extern "C" [[REACHSCAN_ENTRY]] void reachscan_sweep() { reachscan::sweeper::sweep(); }
