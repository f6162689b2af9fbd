// Takes stacks of 30 frames, and prints the nanoseconds of processor time that one took:
// capture_target WAY COUNT THREADS. The ways are tables and frame-pointers, which are the
// recorder's, libunwind's fast trace and cursor, and told: what instrumented functions tell.
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FRAMES = 30 };

bool prepare(bool frame_pointers_only);
uint32_t capture(uint32_t depth);
int get_tls_backtrace(void** backtrace, int max);

typedef uint32_t Way(uint32_t depth);

static long count;
static pthread_barrier_t begins, ends;
static uint64_t taken;

static uint64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t fast_trace(uint32_t depth) {
  void* frames[FRAMES];
  return (uint32_t)unw_backtrace(frames, (int)depth);
}

static uint32_t cursor(uint32_t depth) {
  unw_context_t context;
  unw_cursor_t at;
  unw_word_t frames[FRAMES];
  uint32_t found = 0;
  unw_getcontext(&context);
  unw_init_local(&at, &context);
  while (found < depth && unw_step(&at) > 0) unw_get_reg(&at, UNW_REG_IP, &frames[found++]);
  return found;
}

static __attribute__((no_instrument_function)) uint32_t told(uint32_t depth) {
  void* frames[FRAMES];
  return (uint32_t)get_tls_backtrace(frames, (int)depth);
}

static __attribute__((noinline)) void measure(Way* way) {
  // The first one fills caches.
  if (way(FRAMES) != FRAMES) exit(3);
  pthread_barrier_wait(&begins);
  uint64_t begin = nanoseconds();
  for (long i = 0; i < count; ++i) way(FRAMES);
  __atomic_fetch_add(&taken, nanoseconds() - begin, __ATOMIC_RELAXED);
  pthread_barrier_wait(&ends);
}

static __attribute__((noinline)) void descend(int depth, Way* way) {
  if (depth == 0) {
    measure(way);
  } else {
    descend(depth - 1, way);
  }
  asm volatile("");
}

static void* run(void* way) {
  descend(FRAMES + 2, *(Way**)way);
  return NULL;
}

static Way* named(const char* name) {
  if (strcmp(name, "told") == 0) return told;
  if (strcmp(name, "cursor") == 0) return cursor;
  if (strcmp(name, "unw_backtrace") == 0) return fast_trace;
  return prepare(strcmp(name, "frame-pointers") == 0) ? capture : NULL;
}

int main(int words, char** word) {
  if (words != 4) return 2;
  Way* way = named(word[1]);
  count = atol(word[2]);
  long threads = atol(word[3]);
  if (way == NULL) return 4;
  pthread_barrier_init(&begins, NULL, (unsigned)threads);
  pthread_barrier_init(&ends, NULL, (unsigned)threads + 1);
  for (long i = 0; i < threads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, &way) != 0) return 5;
  }
  pthread_barrier_wait(&ends);
  printf("%.2f\n", (double)taken / (double)count / (double)threads);
  return 0;
}
