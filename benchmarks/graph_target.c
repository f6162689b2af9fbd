// The target of sweep.py and others: a heap of known shape and size.
//
//   graph_target SHAPE BLOCKS
//
//   tree-random      a binary tree of blocks of 16 to 96 bytes in random order of addresses
//   tree-sequential  the same in the order of addresses
//   list-random      a singly linked list of such blocks in random order of addresses
//   buffers          a binary tree of blocks of 256 to 16384 bytes (log-uniform) full of numbers
//
// Another 1 % of the blocks is leaked. Each line on standard input asks for one measurement; the
// answer is what it took, in ns:
//
//   read    a sequential read of the memory from the first block to the last
//   chase   the list followed from its first block to its last
//   lsan    the check of LeakSanitizer; only in a program that was built with it
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "target.h"

extern __attribute__((weak)) int __lsan_do_recoverable_leak_check(void);

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

static struct block* new_block(size_t size) {
  uint64_t* block = malloc(size);
  if (block == NULL) exit(1);
  // Too large for an address, as most numbers in most programs are no addresses.
  for (size_t i = 0; i < size / 8; ++i) block[i] = next_random() | 1ull << 62;
  memset(block, 0, sizeof(struct block));
  if (lowest == NULL || (char*)block < lowest) lowest = (char*)block;
  if ((char*)block + size > highest) highest = (char*)block + size;
  return (struct block*)block;
}

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

static void build(const char* shape, size_t count) {
  int buffers = strcmp(shape, "buffers") == 0, list = strcmp(shape, "list-random") == 0;
  struct block** blocks = new_array(count * sizeof *blocks);
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = new_block(buffers ? buffer_size() : small_size());
    if (i % 100 == 0) new_block(small_size());  // leaked
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
  if (argc != 3) return 2;
  build(argv[1], (size_t)atol(argv[2]));
  serve(measure);
  _exit(0);  // or LeakSanitizer would check once more
}
