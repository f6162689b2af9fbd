// The program that runs in the frozen clone: enumerate, mark, report what stayed unmarked.
// One translation unit, no library, no system call (wire/sweeper_abi.hpp), no relocation.
#include <new>

#include "heaps/glibc.hpp"
#include "heaps/interposed.hpp"
#include "sweeper/collect.hpp"
#include "sweeper/emit.hpp"
#include "sweeper/mark.hpp"
#include "sweeper/roots.hpp"
#ifndef REACHSCAN_HOSTED
#include "sweeper/runtime.hpp"
#endif

namespace reachscan::sweeper {
namespace {

using heaps::Space;
using heaps::Verdict;
using heaps::glibc::Walker;

void refuse_verdict(const Verdict& verdict) {
  bool memory = verdict.status == Verdict::kNoMemory;
  refuse(memory ? abi::Refusal::kNoMemory : abi::Refusal::kLayoutUnknown,
         memory ? "the clone could not get working memory" : verdict.reason, verdict.address);
}

// Any other allocator would own blocks that nobody here enumerates.
void require_known_allocator(const Space& space, const Walker& walker) {
  auto is_known = [&](uint32_t file) {
    for (std::size_t i = 0; i < walker.instance_count; ++i)
      if (walker.instances[i].file == file) return true;
    return false;
  };
  if (uint64_t module = heaps::find_interposed_malloc(space, is_known))
    refuse(abi::Refusal::kLayoutUnknown, "malloc is provided by a module that is not understood",
           module);
  if (walker.instance_count > 0) return;
  for (const abi::Mapping& m : space)
    if (Space::is_written_anonymous(m))
      refuse(abi::Refusal::kLayoutUnknown, "no known allocator was found in the process", m.start);
}

void send_heap(const Space& space, const Walker& walker, const heaps::BlockMap& blocks) {
  char name[heaps::glibc::kNameLength] = "none";
  if (walker.instance_count > 0) heaps::glibc::write_name(space, walker.instances[0], name);
  Record record(wire::kHeap);
  record.str(name).u64(walker.totals.blocks).u64(walker.totals.bytes);
  record.u32(static_cast<uint32_t>(walker.arenas.size()));
  record.u32(static_cast<uint32_t>(blocks.regions.size()));
  record.send();
  send_regions(blocks);
}

void warn_about_mapped_blocks(const Walker& walker) {
  if (walker.mapped_found == walker.mapped_expected) return;
  Record record(wire::kWarning);
  record.str("incomplete-mapped-blocks")
      .str(
          "the number of separately mapped blocks found differs from the allocator's own count; "
          "some large blocks may be missing or reported wrongly");
  record.send();
}

abi::Totals totals_of(const Walker& walker, const LeakWriter& writer) {
  return {walker.totals.blocks, walker.totals.bytes,  writer.leaks.blocks,
          writer.leaks.bytes,   writer.direct.blocks, writer.direct.bytes};
}

void mark_all(const Space& space, const Walker& walker, heaps::BlockMap& blocks,
              const abi::Thread* threads) {
  Roots roots(space, blocks, threads, control()->thread_count);
  for (std::size_t i = 0; i < walker.instance_count; ++i) {
    const auto& instance = walker.instances[i];
    roots.exclude(instance.main_arena, instance.main_arena + instance.layout.size);
  }
  // Beyond the heap's own words, one slice of a root may be waiting.
  Marker marker(space, blocks, walker.totals.bytes / 8 + walker.totals.blocks + heaps::kPage);
  marker.expect(roots.size() + walker.totals.bytes);
  roots.mark(marker);
}

void sweep() {
  Space space(reinterpret_cast<const abi::Mapping*>(control()->mappings), control()->mapping_count);
  const auto* threads = reinterpret_cast<const abi::Thread*>(control()->threads);
  begin_phase(wire::kEnumerate);
  Walker walker(space, threads, control()->thread_count, map_memory);
  require_known_allocator(space, walker);
  if (!walker.quiet(control()->hint))
    refuse(abi::Refusal::kAllocatorBusy, "a thread is inside the allocator", 0);
  heaps::BlockMap blocks(space, map_memory);
  Verdict verdict = walker.enumerate(blocks);
  if (!verdict.fine()) refuse_verdict(verdict);
  blocks.finish();
  send_heap(space, walker, blocks);
  warn_about_mapped_blocks(walker);

  // Too large for the stack that the helper made.
  auto* writer = new (map_memory(sizeof(LeakWriter))) LeakWriter(space);
  if (control()->list_heap != 0) {
    blocks.each_live(
        [&](uint64_t block) { writer->add(block, blocks.end_of(block) - block, wire::kDirect); });
  } else {
    begin_phase(wire::kMark);
    mark_all(space, walker, blocks, threads);
    begin_phase(wire::kCollect);
    collect_leaks(space, blocks, *writer);
  }
  writer->finish();
  control()->totals = totals_of(walker, *writer);
  request(abi::Request::kFinished);
}

}  // namespace
}  // namespace reachscan::sweeper

extern "C" __attribute__((used)) void reachscan_sweep() { reachscan::sweeper::sweep(); }
