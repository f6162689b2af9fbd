// libreachscan: the leak scanner inside a program. The manual is docs/library.md.
//
// The calls look at the whole process: they start the helper program, which stops all threads for a
// moment, searches a clone of the process, and tells which heap blocks nothing points to any more.
// None of them allocates from the heap.
#ifndef REACHSCAN_H
#define REACHSCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define REACHSCAN_CONTENTS 32
#define REACHSCAN_FRAMES 16

// A block that nothing points to, and what only it leads to.
struct reachscan_leak {
  uintptr_t begin;
  size_t size;  // usable bytes, as the allocator holds them
  size_t referenced_count;
  size_t referenced_size;
  size_t similar_count;  // other such blocks that the same stack allocated, if stacks are recorded
  size_t similar_size;
  size_t similar_referenced_count;
  size_t similar_referenced_size;
  size_t total_size;  // all of the above
  char contents[REACHSCAN_CONTENTS];
  struct {
    size_t num_frames;
    uintptr_t frames[REACHSCAN_FRAMES];
    size_t reserved[8];
  } backtrace;
  size_t reserved[8];
};

struct reachscan_options {
  size_t limit;           // leaks that the report lists, the largest first; totals count all
  unsigned max_pause_ms;  // that the threads may be stopped for; 0: a second
  unsigned timeout_s;     // 0: an hour
  const char* method;     // auto, clone, copy, track or live; null: auto
  size_t reserved[8];
};

enum reachscan_result {
  REACHSCAN_NO_LEAKS = 0,
  REACHSCAN_LEAKS = 1,
  REACHSCAN_FAILED = 3  // the report's `error` says why
};

// Memory of a report is hidden from scans, so that a leak that it names stays one.
struct reachscan_report {
  const struct reachscan_leak* leaks;
  size_t listed;     // how many of them
  size_t num_leaks;  // blocks that are leaked for certain, with those that only they lead to
  size_t leak_bytes;
  size_t possible_leaks;  // blocks that may be leaked
  size_t possible_bytes;
  size_t num_allocations;
  size_t allocation_bytes;
  uint64_t pause_ns;
  char error[256];
  size_t reserved[8];
};

// Scans the process. `options` may be null: those of REACHSCAN_OPTIONS,
// else the 100 largest leaks. The result is one of enum
// reachscan_result; unless the scan failed, `report` must be given to reachscan_report_free().
int reachscan_check(const struct reachscan_options* options, struct reachscan_report* report);
void reachscan_report_free(struct reachscan_report* report);

// Write the text of a leak or a report, cut to `size` bytes and ended by a zero, as snprintf()
// does; they return its whole length.
size_t reachscan_leak_text(const struct reachscan_leak* leak, bool contents, char* text,
                           size_t size);
size_t reachscan_report_text(const struct reachscan_report* report, bool contents, char* text,
                             size_t size);

// Memory that scans do not look into, for copies of what a report says. Null if there is none.
void* reachscan_unseen_alloc(size_t size);
void reachscan_unseen_free(void* memory, size_t size);

// What annotations say holds for scans from outside, too.

// The block is no leak, nor is what it leads to. 0, or -1 with errno: EINVAL for a null pointer,
// ENOMEM if there is no room.
int reachscan_ignore_object(const void* block);

// Between these, what this thread allocates is no leak. They nest. 0, or -1 with errno ENOTSUP if
// malloc is not the library's (another allocator stands before it, or it was loaded by dlopen()).
int reachscan_disable(void);
int reachscan_enable(void);

// Blocks that this memory points to are no leaks. The same results.
int reachscan_register_root_region(const void* start, size_t size);
int reachscan_unregister_root_region(const void* start, size_t size);

// Pools: for an allocator of the program's own, which hands out parts of larger pieces of memory.
// Between create and destroy, objects in such a piece are allocations like those of malloc; what is
// in none of them is free, and keeps nothing alive. An object is noted before the program writes to
// it, and freed before it may be handed out again. Objects begin at multiples of 8 bytes. A piece
// is destroyed before it is given back; what malloc returned, or a part of it, may be one.

// `pool` is for the calls below. Null with errno: EINVAL for no memory at all, ENOMEM.
struct reachscan_pool* reachscan_pool_create(const void* memory, size_t size);
void reachscan_pool_destroy(struct reachscan_pool* pool);

// 0, or -1 with errno EINVAL: the object does not lie in the pool, or not at such a multiple. In
// the second case, all of the pool counts as in use from then on. Noted once more, an object may
// have another size; what it covers is forgotten.
int reachscan_pool_alloc(struct reachscan_pool* pool, const void* object, size_t size);
// 0, or -1 with errno EINVAL: no object begins there.
int reachscan_pool_free(struct reachscan_pool* pool, const void* object);

// libmemunreachable's calls. LogUnreachableMemory writes to stderr.
bool LogUnreachableMemory(bool log_contents, size_t limit);
bool NoLeaks(void);

// Where the functions return to that the calling thread is in, innermost first: `max` at most, of
// those compiled with -finstrument-functions. Returns how many.
int get_tls_backtrace(void** backtrace, int max);

// Has the allocations of the process recorded from now on, as `reachscan attach` has; `options` are
// its options, such as "--min-size 64 --depth 16", or null. 0, or -1 with a sentence on stderr.
int reachscan_start_recording(const char* options);
int reachscan_stop_recording(void);

// malloc_debug's calls, if the process is being recorded: records of `info_size` bytes, each of the
// requested size, how many blocks have it and the same stack, and `backtrace_size` return
// addresses, innermost first, followed by zeros. All is 0 if nothing is recorded.
void get_malloc_leak_info(uint8_t** info, size_t* overall_size, size_t* info_size,
                          size_t* total_memory, size_t* backtrace_size);
void free_malloc_leak_info(uint8_t* info);

// LeakSanitizer's calls.
void __lsan_do_leak_check(void);  // once; exits with REACHSCAN_EXITCODE (23) if there are leaks
int __lsan_do_recoverable_leak_check(void);
void __lsan_disable(void);
void __lsan_enable(void);
void __lsan_ignore_object(const void* block);
void __lsan_register_root_region(const void* start, size_t size);
void __lsan_unregister_root_region(const void* start, size_t size);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
