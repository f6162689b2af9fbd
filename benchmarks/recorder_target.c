// Allocates and frees blocks of 16 to 280 bytes, 27 calls deep, in threads. Prints the nanoseconds
// that a pair took: recorder_target THREADS PAIRS [LOST]. Every LOST-th block is lost, and
// the program ends with its input then.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEPTH = 27, HELD = 64 };

static long pairs, lost;

static uint64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static __attribute__((noinline)) void churn(void) {
  void* held[HELD] = {0};
  for (long i = 0; i < pairs; ++i) {
    void** slot = &held[i % HELD];
    if (lost == 0 || i % lost != 0) free(*slot);
    *slot = malloc(16 + (size_t)(i * 37 % 265));
    asm volatile("" ::"r"(*slot) : "memory");
  }
  for (int i = 0; i < HELD; ++i) free(held[i]);
}

static __attribute__((noinline)) void descend(int depth) {
  if (depth == 0) {
    churn();
  } else {
    descend(depth - 1);
  }
  asm volatile("");
}

static void* run(void* unused) {
  // The thread's start, run, churn and what calls the allocator are frames, too.
  descend(DEPTH - 5);
  return unused;
}

int main(int count, char** words) {
  if (count < 3) return 2;
  int threads = atoi(words[1]);
  pthread_t started[64];
  pairs = atol(words[2]);
  if (count > 3) lost = atol(words[3]);
  uint64_t begin = nanoseconds();
  for (int i = 0; i < threads; ++i) pthread_create(&started[i], NULL, run, NULL);
  for (int i = 0; i < threads; ++i) pthread_join(started[i], NULL);
  printf("%.2f\n", (double)(nanoseconds() - begin) / (double)pairs);
  fflush(stdout);
  while (lost != 0 && getchar() != EOF) continue;
  return 0;
}
