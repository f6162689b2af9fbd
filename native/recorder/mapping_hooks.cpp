// The functions that map and unmap memory. Only in the preloaded form, like those of threads.
#include <sys/mman.h>
#include <sys/types.h>

#include "arch/address_space.hpp"
#include "recorder/process.hpp"
#include "recorder/recorder.hpp"

namespace reachscan::recorder {

namespace {

using Map = void*(void*, std::size_t, int, int, int, off_t);

constinit Next<Map> next_mmap("mmap");
constinit Next<Map> next_mmap64("mmap64");
constinit Next<int(void*, std::size_t)> next_munmap("munmap");
constinit Next<void*(void*, std::size_t, std::size_t, int, void*)> next_mremap("mremap");

constexpr int kDontUnmap = 4;  // MREMAP_DONTUNMAP

// The pages affected by a call.
class Pages {
 public:
  Pages(const void* address, std::size_t bytes)
      : start_(reinterpret_cast<std::uint64_t>(address)),
        end_((start_ + bytes + arch::kPage - 1) / arch::kPage * arch::kPage) {}

  void forget() const {
    if (!recorder.mappings().cut(start_, end_)) recorder.lose();
  }

  void remember(const Allocation& by) const {
    if (!recorder.mappings().insert(start_, end_, kMapped, by)) recorder.lose();
  }

 private:
  std::uint64_t start_, end_;
};

// Memory that the kernel replaces may be reused as soon as it is gone; new memory belongs only to
// the caller until this returns.
template <typename Call>
void* map(std::size_t bytes, bool replaces, const arch::Frame& caller, Call call) {
  Allocation by;
  bool is_wanted = recorder.note_mapping(caller, by);
  void* mapped = replaces ? nullptr : call();
  if (mapped == MAP_FAILED) return mapped;
  LiveMappings::Locked locked(recorder.mappings());
  if (replaces) mapped = call();
  if (mapped == MAP_FAILED) return mapped;
  Pages pages(mapped, bytes);
  is_wanted ? pages.remember(by) : pages.forget();
  return mapped;
}

}  // namespace

}  // namespace reachscan::recorder

using namespace reachscan;
using namespace reachscan::recorder;

#pragma GCC visibility push(default)
extern "C" {

void* mmap(void* at, std::size_t bytes, int allowed, int flags, int file, off_t offset) noexcept {
  auto call = [=] { return next_mmap(at, bytes, allowed, flags, file, offset); };
  if (!recorder::recorder.records_mappings()) return call();
  return map(bytes, (flags & MAP_FIXED) != 0, arch::calling_frame(), call);
}

void* mmap64(void* at, std::size_t bytes, int allowed, int flags, int file, off_t offset) noexcept {
  auto call = [=] { return next_mmap64(at, bytes, allowed, flags, file, offset); };
  if (!recorder::recorder.records_mappings()) return call();
  return map(bytes, (flags & MAP_FIXED) != 0, arch::calling_frame(), call);
}

int munmap(void* at, std::size_t bytes) noexcept {
  if (!recorder::recorder.records_mappings()) return next_munmap(at, bytes);
  LiveMappings::Locked locked(recorder::recorder.mappings());
  int error = next_munmap(at, bytes);
  if (error == 0) Pages(at, bytes).forget();
  return error;
}

// What it moves is recorded as a new mapping, like blocks that realloc() moves.
void* mremap(void* at, std::size_t bytes, std::size_t new_bytes, int flags, ...) noexcept {
  __builtin_va_list rest;
  __builtin_va_start(rest, flags);
  void* new_at = __builtin_va_arg(rest, void*);
  __builtin_va_end(rest);
  auto call = [=] { return next_mremap(at, bytes, new_bytes, flags, new_at); };
  if (!recorder::recorder.records_mappings()) return call();
  return map(new_bytes, true, arch::calling_frame(), [=] {
    void* moved = call();
    if (moved != MAP_FAILED && (flags & kDontUnmap) == 0 && bytes != 0) Pages(at, bytes).forget();
    return moved;
  });
}

}  // extern "C"
#pragma GCC visibility pop
