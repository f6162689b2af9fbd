// The functions that create and join threads: their stacks are mappings made by the C library. Only
// in the preloaded form, since a thread may wait here for as long as the process lives.
#include <time.h>

#include "recorder/process.hpp"
#include "recorder/recorder.hpp"

namespace reachscan::recorder {

namespace {

using Thread = std::uint64_t;  // the address of what describes it, in its stack
using Attributes = const void*;
using Start = void* (*)(void*);

constinit Next<int(Thread*, Attributes, Start, void*)> next_create("pthread_create");
constinit Next<int(Attributes, int*)> next_detach_state("pthread_attr_getdetachstate");
constinit Next<int(Attributes, void**, std::size_t*)> next_stack("pthread_attr_getstack");
constinit Next<int(Thread)> next_detach("pthread_detach");
constinit Next<int(Thread, void**)> next_join("pthread_join");
constinit Next<int(Thread, void**)> next_try_join("pthread_tryjoin_np");
constinit Next<int(Thread, void**, const timespec*)> next_timed_join("pthread_timedjoin_np");
constinit Next<int(Thread, void**, int, const timespec*)> next_clock_join("pthread_clockjoin_np");

constexpr int kDetached = 1;  // PTHREAD_CREATE_DETACHED

bool is_detached(Attributes attributes) {
  int state = 0;
  return attributes != nullptr && next_detach_state(attributes, &state) == 0 && state == kDetached;
}

// A stack provided by the program is one of its own mappings or blocks. Where none was provided,
// one C library reports an error, the other a stack that ends at address 0.
bool has_own_stack(Attributes attributes) {
  void* lowest = nullptr;
  std::size_t bytes = 0;
  return attributes != nullptr && next_stack(attributes, &lowest, &bytes) == 0 &&
         reinterpret_cast<std::uint64_t>(lowest) + bytes != 0;
}

// It may have detached itself by now; `serial` is from before the thread existed.
void remember(Thread thread, MappingKind kind, std::uint32_t serial, const Allocation& by) {
  LiveMappings& mappings = recorder.mappings();
  LiveMappings::Locked locked(mappings);
  const MappingRow* before = mappings.find(thread);
  if (before != nullptr && before->kind == kDetachedStack && before->serial > serial)
    kind = kDetachedStack;
  if (!mappings.insert(thread, thread + 1, kind, by)) recorder.lose();
}

// Called before the real function, since the thread may be gone afterwards, and its stack reused.
// The row may still be that of a former thread there.
void mark_detached(Thread thread) {
  LiveMappings& mappings = recorder.mappings();
  LiveMappings::Locked locked(mappings);
  if (MappingRow* row = mappings.find(thread); row != nullptr)
    mappings.renew(*row, kDetachedStack);
  else if (!mappings.insert(thread, thread + 1, kDetachedStack, {}))
    recorder.lose();
}

// While it is waited for, the thread exists. Afterwards its stack may be reused.
template <typename Call>
int join(Thread thread, Call call) {
  if (!recorder.records_mappings()) return call();
  LiveMappings& mappings = recorder.mappings();
  std::uint32_t serial = 0;
  {
    LiveMappings::Locked locked(mappings);
    if (const MappingRow* row = mappings.find(thread); row != nullptr) serial = row->serial;
  }
  int error = call();
  if (error != 0 || serial == 0) return error;
  LiveMappings::Locked locked(mappings);
  MappingRow* row = mappings.find(thread);
  if (row != nullptr && row->serial == serial) LiveMappings::forget(*row);
  return error;
}

}  // namespace

}  // namespace reachscan::recorder

using namespace reachscan;
using namespace reachscan::recorder;

#pragma GCC visibility push(default)
extern "C" {

int pthread_create(Thread* thread, Attributes attributes, Start start, void* argument) {
  std::uint32_t serial = recorder::recorder.mappings().serial();
  int error = next_create(thread, attributes, start, argument);
  if (error != 0 || !recorder::recorder.records_mappings() || has_own_stack(attributes))
    return error;
  Allocation by;
  if (recorder::recorder.note_mapping(arch::calling_frame(), by))
    remember(*thread, is_detached(attributes) ? kDetachedStack : kStack, serial, by);
  return error;
}

int pthread_detach(Thread thread) {
  if (recorder::recorder.records_mappings()) mark_detached(thread);
  return next_detach(thread);
}

int pthread_join(Thread thread, void** result) {
  return join(thread, [=] { return next_join(thread, result); });
}

int pthread_tryjoin_np(Thread thread, void** result) {
  return join(thread, [=] { return next_try_join(thread, result); });
}

int pthread_timedjoin_np(Thread thread, void** result, const timespec* until) {
  return join(thread, [=] { return next_timed_join(thread, result, until); });
}

int pthread_clockjoin_np(Thread thread, void** result, int clock, const timespec* until) {
  return join(thread, [=] { return next_clock_join(thread, result, clock, until); });
}

}  // extern "C"
#pragma GCC visibility pop
