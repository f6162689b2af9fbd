// The least that any scan must do to a process: stops all of its threads and lets them go.
//
//   stop_release PID
//
// Each line on standard input asks for one round; the answer is what it took, in ns.
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "target.h"

enum { MOST_THREADS = 100000 };
static pid_t threads[MOST_THREADS];
static int count;
static const char* pid;

static void seize_all(void) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/task", pid);
  DIR* folder = opendir(path);
  if (folder == NULL) exit(1);
  count = 0;
  for (struct dirent* entry; (entry = readdir(folder)) != NULL && count < MOST_THREADS;) {
    pid_t thread = atoi(entry->d_name);
    if (thread != 0 && ptrace(PTRACE_SEIZE, thread, NULL, NULL) == 0) threads[count++] = thread;
  }
  closedir(folder);
}

static long long stop_and_release(void) {
  long long begin = now();
  for (int i = 0; i < count; ++i) ptrace(PTRACE_INTERRUPT, threads[i], NULL, NULL);
  for (int i = 0; i < count; ++i) waitpid(threads[i], NULL, __WALL);
  for (int i = 0; i < count; ++i) ptrace(PTRACE_DETACH, threads[i], NULL, NULL);
  return now() - begin;
}

static long long measure(const char* unused) {
  (void)unused;
  seize_all();
  // As the helper does while the target is stopped.
  struct sched_param urgent = {1}, normal = {0};
  sched_setscheduler(0, SCHED_FIFO, &urgent);
  long long took = stop_and_release();
  sched_setscheduler(0, SCHED_OTHER, &normal);
  return took;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  pid = argv[1];
  serve(measure);
  return 0;
}
