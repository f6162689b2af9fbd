// libreachscan: the leak scanner inside a program. The manual is docs/library.md.
//
// The calls examine the whole process: they start the helper program, which stops all threads for a
// moment, searches a clone of the process, and reports which heap blocks nothing points to any
// more. None of them allocates from the heap.
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

// A block that nothing points to, and the blocks that only it leads to.
struct reachscan_leak {
  uintptr_t begin;
  size_t size;  // usable bytes, according to the allocator
  size_t referenced_count;
  size_t referenced_size;
  size_t similar_count;  // other such blocks with the same allocation stack, if stacks are recorded
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
  size_t is_possible;  // 1: may be leaked, 0: is leaked for certain
  size_t reserved[7];
};

struct reachscan_options {
  size_t limit;           // how many leaks to list, the largest first; totals count all
  unsigned max_pause_ms;  // maximal pause of the threads; 0: a second
  unsigned timeout_s;     // 0: an hour
  const char* method;     // auto, clone, copy, track or live; null: auto
  size_t list_possible;   // 1: list what may be leaked, too, behind what is leaked for certain
  size_t reserved[7];
};

enum reachscan_result {
  REACHSCAN_NO_LEAKS = 0,
  REACHSCAN_LEAKS = 1,
  REACHSCAN_FAILED = 3  // the report's `error` says why
};

// Memory of a report is hidden from scans, so that a leak that it names remains a leak.
struct reachscan_report {
  const struct reachscan_leak* leaks;
  size_t listed;     // the number of `leaks`
  size_t num_leaks;  // blocks that are certainly leaked, with those that only they lead to
  size_t leak_bytes;
  size_t possible_leaks;  // blocks that may be leaked
  size_t possible_bytes;
  size_t num_allocations;
  size_t allocation_bytes;
  uint64_t pause_ns;
  char error[256];
  size_t reserved[8];
};

// Scans the process. If `options` is null, uses those of REACHSCAN_OPTIONS, or lists the 100
// largest leaks. Returns one of enum reachscan_result. Unless the scan failed, `report` must be
// passed to reachscan_report_free().
int reachscan_check(const struct reachscan_options* options, struct reachscan_report* report);
void reachscan_report_free(struct reachscan_report* report);

// Write the text of a leak or a report, truncated to `size` bytes and terminated by a zero, as
// snprintf() does. Return its whole length.
size_t reachscan_leak_text(const struct reachscan_leak* leak, bool contents, char* text,
                           size_t size);
size_t reachscan_report_text(const struct reachscan_report* report, bool contents, char* text,
                             size_t size);

// Memory that scans do not search, for copies of a report's contents. Null if there is none.
void* reachscan_unseen_alloc(size_t size);
void reachscan_unseen_free(void* memory, size_t size);

// Annotations also apply to scans from outside.

// Declares that the block and everything it leads to are not leaks. Returns 0, or -1 with errno:
// EINVAL for a null pointer, ENOMEM if there is no room.
int reachscan_ignore_object(const void* block);

// What this thread allocates between these calls is not a leak. They nest. Return 0, or -1 with
// errno ENOTSUP if malloc is not the library's (another allocator comes before it, or it was loaded
// with dlopen()).
int reachscan_disable(void);
int reachscan_enable(void);

// Blocks that this memory points to are not leaks. Return the same results.
int reachscan_register_root_region(const void* start, size_t size);
int reachscan_unregister_root_region(const void* start, size_t size);

// Pools: for an allocator of the program's own, which hands out parts of larger pieces of memory.
// Between create and destroy, objects in such a piece count as allocations like those of malloc;
// anything outside of them is free and keeps nothing alive. Note an object before writing to it,
// and free it before it may be handed out again. Objects start at multiples of 8 bytes. Destroy the
// pool before its memory is released. The memory may be, or be part of, a block from malloc.

// Returns the pool for the calls below, or null with errno: EINVAL for no memory at all, ENOMEM.
struct reachscan_pool* reachscan_pool_create(const void* memory, size_t size);
void reachscan_pool_destroy(struct reachscan_pool* pool);

// Returns 0, or -1 with errno EINVAL: the object is not in the pool, or not at such a multiple. In
// the second case, the whole pool counts as in use from then on. An object noted again may have
// another size; any object that it covers is forgotten.
int reachscan_pool_alloc(struct reachscan_pool* pool, const void* object, size_t size);
// Returns 0, or -1 with errno EINVAL: no object starts there.
int reachscan_pool_free(struct reachscan_pool* pool, const void* object);

// libmemunreachable's calls. LogUnreachableMemory writes to stderr.
bool LogUnreachableMemory(bool log_contents, size_t limit);
bool NoLeaks(void);

// Writes the return addresses of the functions that the calling thread is in, innermost first, at
// most `max`, for functions compiled with -finstrument-functions. Returns how many.
int get_tls_backtrace(void** backtrace, int max);

// Starts to record the allocations of the process, like `reachscan attach`; `options` are its
// options, such as "--min-size 64 --depth 16", or null. Returns 0, or -1 with a message on stderr.
int reachscan_start_recording(const char* options);
int reachscan_stop_recording(void);

// malloc_debug's calls, for a process that is being recorded: records of `info_size` bytes, each
// with the requested size, the number of blocks with this size and stack, and `backtrace_size`
// return addresses, innermost first, padded with zeros. All is 0 if nothing is recorded.
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
