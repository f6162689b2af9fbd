// What the recorder costs for blocks that it does not record. Short runs of malloc and free take
// turns: through the recorder, which comes first, and through the C library itself. The shortest
// runs have met neither another program nor a sample. Prints, for the 20th part of the runs that
// were the shortest, the longest of these: nanoseconds for a pair, through the recorder and
// without.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "target.h"

enum { HELD = 64, PAIRS = 1000, RUNS = 6000, SHARE = 20 };

typedef void* (*Malloc)(size_t);
typedef void (*Free)(void*);

static __attribute__((noinline)) long long run(Malloc allocate, Free release) {
  void* held[HELD] = {0};
  long long begin = now();
  for (long i = 0; i < PAIRS; ++i) {
    void** slot = &held[i % HELD];
    release(*slot);
    *slot = allocate(16 + (size_t)(i * 37 % 265));
  }
  long long took = now() - begin;
  for (int i = 0; i < HELD; ++i) release(held[i]);
  return took;
}

static int compare(const void* one, const void* other) {
  long long a = *(const long long*)one, b = *(const long long*)other;
  return (a > b) - (a < b);
}

static double shortest(long long* runs) {
  qsort(runs, RUNS, sizeof *runs, compare);
  return (double)runs[RUNS / SHARE] / PAIRS;
}

int main(void) {
  static long long with[RUNS], without[RUNS];
  void* library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) return 1;
  Malloc real_malloc = (Malloc)dlsym(library, "malloc");
  Free real_free = (Free)dlsym(library, "free");
  for (int i = 0; i < RUNS; ++i) {
    with[i] = run(malloc, free);
    without[i] = run(real_malloc, real_free);
  }
  printf("%.3f %.3f\n", shortest(with), shortest(without));
  return 0;
}
