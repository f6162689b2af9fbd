// The target of limits.py: memory of 4 KiB or of huge pages, each cache line of which names another
// one, in random order.
//
//   limits_target MEGABYTES small|huge
//
// Each line on standard input asks for one measurement; the answer is what it took, in ns:
//
//   chain      an eighth of the lines, each found in the one before
//   random     all lines in random order, which is known beforehand
//   prefetch   the same, 64 lines prefetched before they are used
//   order      all lines in the order of addresses
//   first 1    the first use of each page by a child that was just forked, on one thread
//   first 2    the same on two threads that share the pages
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "target.h"

enum { LINE = 64, PAGE = 4096, HUGE_PAGE = 2 << 20, BATCH = 64 };

static char* memory;
static size_t bytes, lines;
static uint32_t* order;
volatile uint64_t sink;  // keeps results from being optimised away

static uint64_t read_line(size_t line) { return *(volatile uint64_t*)(memory + line * LINE); }

static void fill(void) {
  for (size_t i = 0; i < lines; ++i) order[i] = (uint32_t)i;
  for (size_t i = lines - 1; i > 0; --i) {
    size_t other = next_random() % i;
    uint32_t held = order[i];
    order[i] = order[other];
    order[other] = held;
  }
  for (size_t i = 0; i < lines; ++i)
    *(uint64_t*)(memory + (size_t)order[i] * LINE) = order[(i + 1) % lines];
}

static void follow_chain(void) {
  size_t line = order[0];
  for (size_t i = 0; i < lines / 8; ++i) line = read_line(line);
  sink = line;
}

static void read_random(void) {
  uint64_t sum = 0;
  for (size_t i = 0; i < lines; ++i) sum += read_line(order[i]);
  sink = sum;
}

static void read_prefetched(void) {
  uint64_t sum = 0;
  for (size_t i = 0; i + BATCH <= lines; i += BATCH) {
    for (size_t j = i; j < i + BATCH; ++j) __builtin_prefetch(memory + (size_t)order[j] * LINE);
    for (size_t j = i; j < i + BATCH; ++j) sum += read_line(order[j]);
  }
  sink = sum;
}

static void read_in_order(void) {
  uint64_t sum = 0;
  for (size_t i = 0; i < lines; ++i) sum += read_line(i);
  sink = sum;
}

static void* use_half(void* start) {
  for (char* at = start; at < (char*)start + bytes / 2; at += PAGE) (void)*(volatile char*)at;
  return NULL;
}

static void use_pages(int threads) {
  pthread_t other;
  if (threads == 1) {
    use_half(memory);
  } else if (pthread_create(&other, NULL, use_half, memory) != 0) {
    exit(1);
  }
  use_half(memory + bytes / 2);
  if (threads != 1) pthread_join(other, NULL);
}

static long long first_use(int threads) {
  int answer[2];
  if (pipe(answer) != 0) exit(1);
  pid_t child = fork();
  if (child < 0) exit(1);
  if (child == 0) {
    long long begin = now();
    use_pages(threads);
    long long took = now() - begin;
    _exit(write(answer[1], &took, sizeof took) != sizeof took);
  }
  long long took = 0;
  if (read(answer[0], &took, sizeof took) != sizeof took) exit(1);
  waitpid(child, NULL, 0);
  close(answer[0]);
  close(answer[1]);
  return took;
}

static long long measure(const char* what) {
  if (strncmp(what, "first", 5) == 0) return first_use(atoi(what + 5));
  long long begin = now();
  if (strcmp(what, "chain") == 0) {
    follow_chain();
  } else if (strcmp(what, "random") == 0) {
    read_random();
  } else if (strcmp(what, "prefetch") == 0) {
    read_prefetched();
  } else if (strcmp(what, "order") == 0) {
    read_in_order();
  } else {
    exit(2);
  }
  return now() - begin;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  bytes = (size_t)atoi(argv[1]) << 20;
  lines = bytes / LINE;
  order = malloc(lines * sizeof *order);
  if (order == NULL || posix_memalign((void**)&memory, HUGE_PAGE, bytes) != 0) return 1;
  madvise(memory, bytes, strcmp(argv[2], "huge") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  fill();
  serve(measure);
  return 0;
}
