// The target of pause.py: memory of 4 KiB pages, all touched, and threads: one waits for requests,
// one spins, the others sleep.
//
//   fork_target MEGABYTES THREADS
//
// Each line on standard input asks for one fork() of its own; the answer is what it took, in ns.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "target.h"

static void* spin(void* unused) {
  for (;;) __asm__ volatile("");
  return unused;
}

static void* sleep_forever(void* unused) {
  for (;;) pause();
  return unused;
}

static long long time_fork(const char* unused) {
  (void)unused;
  long long begin = now();
  pid_t child = fork();
  if (child == 0) _exit(0);
  long long took = now() - begin;
  if (child < 0 || waitpid(child, NULL, 0) != child) exit(1);
  return took;
}

// Twice: the first touch of memory that the machine itself has yet to back is far dearer.
static char* touch(size_t bytes) {
  char* memory = NULL;
  for (int round = 0; round < 2; ++round) {
    if (memory != NULL) munmap(memory, bytes);
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE) != 0) exit(1);
    for (size_t i = 0; i < bytes; i += 4096) memory[i] = 1;
  }
  return memory;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int threads = atoi(argv[2]);
  char* volatile memory = touch((size_t)atol(argv[1]) << 20);
  void* volatile block = malloc(100);  // or there would be no heap to scan
  for (int i = 1; i < threads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, i == 1 ? spin : sleep_forever, NULL) != 0) return 1;
  }
  serve(time_fork);
  return memory == NULL || block == NULL;
}
