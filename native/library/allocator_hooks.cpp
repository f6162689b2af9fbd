// malloc and its relatives, interposed before those of the program: they note what a thread
// allocates while leaks are disabled in it, and forget what is freed. The calls that need this are
// here, too: a program linked with the static library gets all of it, or nothing.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "library/annotate.hpp"
#include "library/include/reachscan.h"

// Defined only in the static glibc.
extern "C" [[gnu::weak]] void _dl_non_dynamic_init();

namespace reachscan::library {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local unsigned disabled = 0;
[[gnu::tls_model("initial-exec")]] thread_local bool looking_up = false;

// For what the dynamic loader allocates while it looks up the next functions.
alignas(16) char spare[16 << 10];
std::atomic<std::size_t> spare_used{0};

bool is_spare(const void* block) { return block >= spare && block < spare + sizeof spare; }

void* take_spare(std::size_t size) {
  size = (size + 15) & ~std::size_t{15};
  std::size_t at = spare_used.fetch_add(size);
  return at + size <= sizeof spare ? spare + at : nullptr;
}

// A program linked with -static has no malloc but ours, and its dlsym() needs one.
[[noreturn]] void refuse_to_start() {
  constexpr char kSentence[] =
      "reachscan: a program that is linked with -static has no malloc behind libreachscan's; link "
      "it dynamically, or leave the library out and run `reachscan PID`\n";
  // There is nobody to tell if this fails.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kSentence, sizeof kSentence - 1);
  _exit(127);  // as the loader does where a library is missing
}

// The next definition of a function after ours; looked up on the first call.
template <typename Function>
class Next;

template <typename Result, typename... Arguments>
class Next<Result(Arguments...)> {
 public:
  using Pointer = Result (*)(Arguments...);

  constexpr explicit Next(const char* name) : name_(name) {}

  // Null while the loader is looking it up.
  Pointer get() {
    Pointer known = known_.load(std::memory_order_relaxed);
    return known != nullptr ? known : look_up();
  }
  Result operator()(Arguments... arguments) { return get()(arguments...); }

 private:
  Pointer look_up() {
    if (looking_up) return nullptr;
    if (_dl_non_dynamic_init != nullptr) refuse_to_start();
    looking_up = true;
    auto found = reinterpret_cast<Pointer>(dlsym(RTLD_NEXT, name_));
    looking_up = false;
    known_.store(found, std::memory_order_relaxed);
    return found;
  }

  const char* name_;
  std::atomic<Pointer> known_{nullptr};
};

constinit Next<void*(std::size_t)> next_malloc("malloc");
constinit Next<void*(std::size_t, std::size_t)> next_calloc("calloc");
constinit Next<void*(void*, std::size_t)> next_realloc("realloc");
constinit Next<void(void*)> next_free("free");
constinit Next<void*(std::size_t, std::size_t)> next_aligned_alloc("aligned_alloc");
constinit Next<void*(std::size_t, std::size_t)> next_memalign("memalign");
constinit Next<int(void**, std::size_t, std::size_t)> next_posix_memalign("posix_memalign");
constinit Next<void*(std::size_t)> next_valloc("valloc");
constinit Next<void*(std::size_t)> next_pvalloc("pvalloc");

void* noted(void* block) {
  if (disabled > 0 && block != nullptr) annotate(Kind::kIgnored, block, 0);
  return block;
}

// Called before the block is freed: right after that it may belong to another thread.
bool forget_block(void* block) {
  return has_annotations(Kind::kIgnored) && forget(Kind::kIgnored, block);
}

// Returns whether the program's calls arrive here: not if another allocator comes before the
// library, or if the library was loaded later.
bool is_in_front() {
  static std::atomic<int> known{0};
  Dl_info ours{}, programs{};
  if (known == 0) {
    bool found = dladdr(reinterpret_cast<void*>(&noted), &ours) != 0 &&
                 dladdr(reinterpret_cast<void*>(&malloc), &programs) != 0;
    known = found && ours.dli_fbase == programs.dli_fbase ? 1 : -1;
  }
  return known == 1;
}

}  // namespace

// Runs early, before any scan: the blocks belong to the next malloc after ours. In a library loaded
// with dlopen(), `malloc` itself would be the program's.
[[gnu::constructor(101)]] static void announce() {
  announce_malloc(reinterpret_cast<const void*>(&noted));
}

}  // namespace reachscan::library

using namespace reachscan::library;

int reachscan_ignore_object(const void* block) {
  if (block != nullptr && annotate(Kind::kIgnored, block, 0)) return 0;
  errno = block == nullptr ? EINVAL : ENOMEM;
  return -1;
}

int reachscan_disable() {
  if (!is_in_front()) {
    errno = ENOTSUP;
    return -1;
  }
  ++disabled;
  return 0;
}

int reachscan_enable() {
  if (disabled == 0) {
    errno = EINVAL;
    return -1;
  }
  --disabled;
  return 0;
}

#pragma GCC visibility push(default)
extern "C" {

void* malloc(std::size_t size) {
  auto* next = next_malloc.get();
  return next != nullptr ? noted(next(size)) : take_spare(size);
}

void* calloc(std::size_t count, std::size_t each) {
  auto* next = next_calloc.get();
  return next != nullptr ? noted(next(count, each)) : take_spare(count * each);
}

void* realloc(void* block, std::size_t size) {
  if (is_spare(block)) {
    void* moved = malloc(size);
    std::size_t left = static_cast<std::size_t>(spare + sizeof spare - static_cast<char*>(block));
    if (moved != nullptr) std::memcpy(moved, block, size < left ? size : left);
    return moved;
  }
  bool was_ignored = forget_block(block);
  void* moved = next_realloc(block, size);
  if (was_ignored && (moved != nullptr || size != 0))
    annotate(Kind::kIgnored, moved != nullptr ? moved : block, 0);
  return was_ignored ? moved : noted(moved);
}

void* reallocarray(void* block, std::size_t count, std::size_t each) {
  std::size_t size;
  if (!__builtin_mul_overflow(count, each, &size)) return realloc(block, size);
  errno = ENOMEM;
  return nullptr;
}

void free(void* block) {
  if (is_spare(block)) return;
  forget_block(block);
  next_free(block);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return noted(next_aligned_alloc(alignment, size));
}

void* memalign(std::size_t alignment, std::size_t size) {
  return noted(next_memalign(alignment, size));
}

int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  int error = next_posix_memalign(block, alignment, size);
  if (error == 0) noted(*block);
  return error;
}

void* valloc(std::size_t size) { return noted(next_valloc(size)); }

void* pvalloc(std::size_t size) { return noted(next_pvalloc(size)); }

}  // extern "C"
#pragma GCC visibility pop
