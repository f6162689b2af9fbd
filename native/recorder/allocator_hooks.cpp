// Hooks for the functions that allocate and free, before those of the C library or another
// allocator.
#include <cstddef>

#include "recorder/process.hpp"
#include "recorder/recorder.hpp"

// The way through it to the real function is in one line of the cache.
#define OFTEN_CALLED [[gnu::aligned(64)]]

namespace reachscan::recorder {

namespace {

void* first_malloc(std::size_t size);
void first_free(void* block);

constinit OftenCalled<void*(std::size_t), first_malloc> next_malloc("malloc");
constinit Next<void*(std::size_t, std::size_t)> next_calloc("calloc");
constinit Next<void*(void*, std::size_t)> next_realloc("realloc");
constinit Next<void*(void*, std::size_t, std::size_t)> next_reallocarray("reallocarray");
constinit OftenCalled<void(void*), first_free> next_free("free");
constinit Next<void*(std::size_t, std::size_t)> next_aligned_alloc("aligned_alloc");
constinit Next<void*(std::size_t, std::size_t)> next_memalign("memalign");
constinit Next<int(void**, std::size_t, std::size_t)> next_posix_memalign("posix_memalign");
constinit Next<void*(std::size_t)> next_valloc("valloc");
constinit Next<void*(std::size_t)> next_pvalloc("pvalloc");

void* first_malloc(std::size_t size) { return next_malloc.first(size); }
void first_free(void* block) { next_free.first(block); }

// Calls the real function, and records what it returns. Allocations that it makes itself (calloc
// may call malloc) are part of this one.
template <typename Call>
[[gnu::always_inline]] inline void* allocate(std::size_t size, const arch::Frame& caller,
                                             Call call) {
  ThreadState& thread = this_thread();
  if (thread.is_inside != 0) return call();
  thread.is_inside = 1;
  bool is_chosen = recorder.may_want(size) && recorder.is_chosen(thread, size);
  std::uint64_t until_sample = thread.until_sample;
  thread.until_sample = 0;
  void* block = call();
  thread.until_sample = until_sample;
  if (block != nullptr && is_chosen) recorder.allocated(thread, block, size, caller);
  thread.is_inside = 0;
  return block;
}

// Forgets the block before the real call, since it may go to another thread at once.
template <typename Call>
[[gnu::always_inline]] inline void* reallocate(void* block, std::size_t size,
                                               const arch::Frame& caller, Call call) {
  CallingOut calling_out;
  Allocation was;
  bool was_recorded = recorder.may_know(block) && recorder.forget(block, was);
  void* moved = recorder.may_want(size) ? allocate(size, caller, call) : call();
  if (moved == nullptr && size != 0 && was_recorded) recorder.remember(was);
  return moved;
}

// Separate functions, reached by tail calls, so that unrecorded calls need no frame.
[[gnu::noinline]] void* recorded_malloc(ThreadState& thread, std::size_t size) {
  thread.is_inside = 1;
  void* block = next_malloc(size);
  if (block != nullptr) recorder.allocated(thread, block, size, arch::calling_frame());
  thread.is_inside = 0;
  return block;
}

PASSES_ON [[gnu::noinline]] void* chosen_malloc(ThreadState& thread, std::size_t size) {
  if (!recorder.is_chosen(thread, size)) return next_malloc(size);
  return recorded_malloc(thread, size);
}

PASSES_ON [[gnu::noinline]] void free_known(void* block) {
  Allocation was;
  recorder.forget(block, was);
  next_free(block);
}

[[gnu::noinline]] void* recorded_calloc(std::size_t count, std::size_t each) {
  return allocate(count * each, arch::calling_frame(), [=] { return next_calloc(count, each); });
}

void* refused_reallocarray(void* block, std::size_t count, std::size_t each) {
  CallingOut calling_out;
  return next_reallocarray(block, count, each);
}

}  // namespace

// Nothing calls another function of the allocator here, unlike in allocate().
PASSES_ON OFTEN_CALLED [[gnu::noinline]] void* unsampled_malloc(std::size_t size) {
  if (recorder.may_want(size)) [[unlikely]] {
    ThreadState& thread = this_thread();
    if (thread.is_inside == 0) return chosen_malloc(thread, size);
  }
  return next_malloc(size);
}

void look_up_allocator() {
  next_malloc.look_up();
  next_calloc.exists();
  next_realloc.exists();
  next_reallocarray.exists();
  next_free.look_up();
  next_aligned_alloc.exists();
  next_memalign.exists();
  next_posix_memalign.exists();
  next_valloc.exists();
  next_pvalloc.exists();
}

}  // namespace reachscan::recorder

using namespace reachscan;
using namespace reachscan::recorder;

#pragma GCC visibility push(default)
extern "C" {

PASSES_ON OFTEN_CALLED void* malloc(std::size_t size) {
  return Recorder::comes_before_sample(this_thread(), size) ? next_malloc(size)
                                                            : unsampled_malloc(size);
}

PASSES_ON void* calloc(std::size_t count, std::size_t each) {
  if (!recorder::recorder.may_want(count * each)) return next_calloc(count, each);
  return recorded_calloc(count, each);
}

void* realloc(void* block, std::size_t size) {
  return reallocate(block, size, arch::calling_frame(), [=] { return next_realloc(block, size); });
}

void* reallocarray(void* block, std::size_t count, std::size_t each) {
  std::size_t size;
  if (__builtin_mul_overflow(count, each, &size)) return refused_reallocarray(block, count, each);
  return reallocate(block, size, arch::calling_frame(), [=] { return next_realloc(block, size); });
}

PASSES_ON OFTEN_CALLED void free(void* block) {
  if (recorder::recorder.may_know(block)) [[unlikely]]
    return free_known(block);
  next_free(block);
}

// Not all C libraries have these, but a program that checks for them finds them now.

PASSES_ON void cfree(void* block) { free(block); }
PASSES_ON void free_sized(void* block, std::size_t) { free(block); }
PASSES_ON void free_aligned_sized(void* block, std::size_t, std::size_t) { free(block); }

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return allocate(size, arch::calling_frame(), [=] { return next_aligned_alloc(alignment, size); });
}

void* memalign(std::size_t alignment, std::size_t size) {
  return allocate(size, arch::calling_frame(), [=] { return next_memalign(alignment, size); });
}

int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  int error = 0;
  allocate(size, arch::calling_frame(), [&]() -> void* {
    error = next_posix_memalign(block, alignment, size);
    return error == 0 ? *block : nullptr;
  });
  return error;
}

void* valloc(std::size_t size) {
  return allocate(size, arch::calling_frame(), [=] { return next_valloc(size); });
}

void* pvalloc(std::size_t size) {
  return allocate(size, arch::calling_frame(), [=] { return next_pvalloc(size); });
}

}  // extern "C"
#pragma GCC visibility pop
