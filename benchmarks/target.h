// What the targets of the benchmarks share.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static inline long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// xorshift64: the same numbers on every machine.
static inline uint64_t next_random(void) {
  static uint64_t state = 88172645463325252ull;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

// Says that all is ready. Each line on standard input then asks for one measurement; the answer is
// what it took, in ns.
static inline void serve(long long (*measure)(const char* what)) {
  printf("ready\n");
  fflush(stdout);
  char line[16];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = 0;
    printf("%lld\n", measure(line));
    fflush(stdout);
  }
}
