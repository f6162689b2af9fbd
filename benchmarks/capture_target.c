// Takes stacks of 30 frames, and prints the nanoseconds that one took: capture_target WAY COUNT.
// The ways are tables and frame-pointers, which are the recorder's, and libunwind's fast trace and
// cursor.
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FRAMES = 30 };

bool prepare(bool frame_pointers_only);
uint32_t capture(uint32_t depth);

static long count;

static uint64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
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

static __attribute__((noinline)) void measure(uint32_t (*way)(uint32_t)) {
  // The first one fills caches.
  if (way(FRAMES) != FRAMES) exit(3);
  uint64_t begin = nanoseconds();
  for (long i = 0; i < count; ++i) way(FRAMES);
  printf("%.2f\n", (double)(nanoseconds() - begin) / (double)count);
}

static __attribute__((noinline)) void descend(int depth, uint32_t (*way)(uint32_t)) {
  if (depth == 0) {
    measure(way);
  } else {
    descend(depth - 1, way);
  }
  asm volatile("");
}

int main(int words, char** word) {
  if (words != 3) return 2;
  count = atol(word[2]);
  bool is_own = word[1][0] == 't' || word[1][0] == 'f';
  if (is_own && !prepare(strcmp(word[1], "frame-pointers") == 0)) return 4;
  descend(FRAMES + 2, is_own ? capture : strcmp(word[1], "cursor") == 0 ? cursor : fast_trace);
  return 0;
}
