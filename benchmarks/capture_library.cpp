// The recorder's way to take a stack, alone: for a program that measures it. Stands in a library of
// its own, for the recorder leaves out what is in its own.
#include <sys/auxv.h>

#include "recorder/create_tables.hpp"
#include "recorder/unwind/unwinder.hpp"

using namespace reachscan::recorder;
namespace arch = reachscan::arch;

static Settings settings;
static Unwinder unwinder;
static StackMemo nothing;

extern "C" {

// False if it cannot.
__attribute__((visibility("default"))) bool prepare(bool frame_pointers_only) {
  Clock clock(getauxval(AT_SYSINFO_EHDR));
  settings.options.depth = kMaxDepth;
  Header* header = create_tables(settings, clock);
  void* rules = map_memory(RuleCache::kBytes);
  if (header == nullptr || rules == nullptr) return false;
  Tables tables(header);
  void* own = map_memory(header->modules.count * sizeof(Modules::Private));
  LinkMap link_map(program_image(getauxval(AT_PHDR), getauxval(AT_PHNUM)));
  if (own == nullptr || !link_map.is_known()) return false;
  Modules modules(tables, link_map, static_cast<Modules::Private*>(own), settings.modules);
  unwinder = Unwinder(modules, RuleCache(rules), StackTrie(tables), getauxval(AT_EXECFN),
                      frame_pointers_only);
  unwinder.update_modules();
  return true;
}

// Takes the stack of the caller, of which nothing is remembered. Returns how many frames it has.
__attribute__((visibility("default"), noinline)) std::uint32_t capture(std::uint32_t depth) {
  MemoFrame frames[kMaxDepth];
  arch::Frame caller = arch::calling_frame();
  std::uint32_t count = unwinder.capture(caller, nothing, frames, depth).count;
  asm volatile("" ::"r"(frames) : "memory");
  return count;
}

}  // extern "C"
