// The target of sweep.py and others: a heap of known shape and size.
//
//   graph_target SHAPE BLOCKS
//
//   tree-random      a binary tree of blocks of 16 to 96 bytes in random order of addresses
//   tree-sequential  the same in the order of addresses
//   list-random      a singly linked list of such blocks in random order of addresses
//   buffers          a binary tree of blocks of 256 to 16384 bytes (log-uniform) full of numbers
//   fragmented       tree-random, with a fifth as many blocks freed in between, in random order
//   arenas           the same, made by 64 threads, each in its own arena
//   pools            tree-random in pools of 1 MiB that the program maps itself, as CPython does;
//                    every tenth block is too large for them
//
// Another 1 % of the blocks is leaked. Each line on standard input asks for one measurement; the
// answer is what it took, in ns:
//
//   read    a sequential read of the memory from the first block to the last
//   chase   the list followed from its first block to its last
//   lsan    the check of LeakSanitizer; only in a program that was built with it
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "target.h"

extern __attribute__((weak)) int __lsan_do_recoverable_leak_check(void);

enum { THREADS = 64 };

struct block {
  struct block* links[2];
};

static struct block* root;
static char *lowest, *highest;
volatile uint64_t sink;  // keeps results from being optimised away

static size_t small_size(void) { return 16 + next_random() % 81; }

static size_t buffer_size(void) {
  size_t octave = (size_t)256 << next_random() % 6;
  return octave + next_random() % octave;
}

static struct block* dress(uint64_t* block, size_t size) {
  if (block == NULL) exit(1);
  // Too large for an address, as most numbers in most programs are no addresses.
  for (size_t i = 0; i < size / 8; ++i) block[i] = next_random() | 1ull << 62;
  memset(block, 0, sizeof(struct block));
  if (lowest == NULL || (char*)block < lowest) lowest = (char*)block;
  if ((char*)block + size > highest) highest = (char*)block + size;
  return (struct block*)block;
}

static struct block* new_block(size_t size) { return dress(malloc(size), size); }

static void* new_array(size_t bytes) {
  void* array =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (array == MAP_FAILED) exit(1);
  return array;
}

static void shuffle(struct block** blocks, size_t count) {
  for (size_t i = count - 1; i > 0; --i) {
    size_t other = next_random() % (i + 1);
    struct block* held = blocks[i];
    blocks[i] = blocks[other];
    blocks[other] = held;
  }
}

static struct block* new_pooled_block(void) {
  static char *at, *end;
  size_t size = (small_size() + 15) & ~(size_t)15;
  if (next_random() % 10 == 0) return new_block(512 + 8 * size);
  if ((size_t)(end - at) < size) end = (at = new_array(1 << 20)) + (1 << 20);
  char* block = at;
  at += size;
  return dress((uint64_t*)block, size);
}

static void leak_one_of_100(size_t i) {
  if (i % 100 == 0) new_block(small_size());
}

static void make_plain(struct block** blocks, size_t count, const char* shape) {
  int buffers = strcmp(shape, "buffers") == 0, pools = strcmp(shape, "pools") == 0;
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = pools ? new_pooled_block() : new_block(buffers ? buffer_size() : small_size());
    leak_one_of_100(i);
  }
}

static void make_fragmented(struct block** blocks, size_t count) {
  size_t holes = 0;
  struct block** freed = new_array((count / 5 + 1) * sizeof *freed);
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = new_block(small_size());
    leak_one_of_100(i);
    if (i % 5 == 0) freed[holes++] = new_block(small_size());
  }
  shuffle(freed, holes);
  for (size_t i = 0; i < holes; ++i) free(freed[i]);
  munmap(freed, (count / 5 + 1) * sizeof *freed);
}

struct part {
  struct block** blocks;
  size_t count;
};

static pthread_barrier_t made;

static void* make_part(void* argument) {
  static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;  // of the random numbers
  struct part* part = argument;
  pthread_mutex_lock(&turn);
  make_fragmented(part->blocks, part->count);
  pthread_mutex_unlock(&turn);
  pthread_barrier_wait(&made);
  for (;;) pause();
  return NULL;
}

static void make_in_arenas(struct block** blocks, size_t count) {
  static struct part parts[THREADS];
  pthread_t thread;
#ifdef M_ARENA_MAX
  mallopt(M_ARENA_MAX, THREADS + 1);
#endif
  pthread_barrier_init(&made, NULL, THREADS + 1);
  for (size_t i = 0; i < THREADS; ++i) {
    size_t first = count * i / THREADS;
    parts[i] = (struct part){blocks + first, count * (i + 1) / THREADS - first};
    if (pthread_create(&thread, NULL, make_part, &parts[i]) != 0) exit(1);
  }
  pthread_barrier_wait(&made);
}

static void build(const char* shape, size_t count) {
  struct block** blocks = new_array(count * sizeof *blocks);
  int list = strcmp(shape, "list-random") == 0;
  if (strcmp(shape, "fragmented") == 0) {
    make_fragmented(blocks, count);
  } else if (strcmp(shape, "arenas") == 0) {
    make_in_arenas(blocks, count);
  } else {
    make_plain(blocks, count, shape);
  }
  if (strcmp(shape, "tree-sequential") != 0) shuffle(blocks, count);
  for (size_t i = 0; i < count; ++i) {
    size_t first = list ? i + 1 : 2 * i + 1, second = list ? count : 2 * i + 2;
    if (first < count) blocks[i]->links[0] = blocks[first];
    if (second < count) blocks[i]->links[1] = blocks[second];
  }
  root = blocks[0];
  munmap(blocks, count * sizeof *blocks);
}

// Four sums, so that memory is the limit and not the addition.
static void read_all(void) {
  uint64_t sums[4] = {0};
  const uint64_t* last = (const uint64_t*)highest - 4;
  for (const uint64_t* at = (const uint64_t*)lowest; at <= last; at += 4)
    for (int i = 0; i < 4; ++i) sums[i] += at[i];
  sink = sums[0] + sums[1] + sums[2] + sums[3];
}

static void chase(void) {
  struct block* block = root;
  while (block->links[0] != NULL) block = block->links[0];
  sink = (uint64_t)block;
}

static long long measure(const char* what) {
  long long begin = now();
  if (strcmp(what, "read") == 0) {
    read_all();
  } else if (strcmp(what, "chase") == 0) {
    chase();
  } else if (&__lsan_do_recoverable_leak_check != NULL && strcmp(what, "lsan") == 0) {
    __lsan_do_recoverable_leak_check();
  } else {
    exit(2);
  }
  return now() - begin;
}

int main(int argc, char** argv) {
  static char buffers[2][BUFSIZ];
  if (argc != 3) return 2;
  // A large request would make malloc empty the fastbins.
  setvbuf(stdin, buffers[0], _IOFBF, BUFSIZ);
  setvbuf(stdout, buffers[1], _IOFBF, BUFSIZ);
  build(argv[1], (size_t)atol(argv[2]));
  serve(measure);
  _exit(0);  // or LeakSanitizer would check once more
}
