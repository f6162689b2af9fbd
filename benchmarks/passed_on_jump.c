// The least that a library can do that comes before the C library's malloc and free: it jumps
// there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static void* first_malloc(size_t size);
static void first_free(void* block);
static void* (*volatile next_malloc)(size_t) = first_malloc;
static void (*volatile next_free)(void*) = first_free;

static void* first_malloc(size_t size) {
  next_malloc = (void* (*)(size_t))dlsym(RTLD_NEXT, "malloc");
  return next_malloc(size);
}

static void first_free(void* block) {
  next_free = (void (*)(void*))dlsym(RTLD_NEXT, "free");
  next_free(block);
}

void* malloc(size_t size) { return next_malloc(size); }
void free(void* block) { next_free(block); }
