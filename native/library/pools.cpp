// Pools: what a program hands out itself, recorded in bits. Several threads may note objects of one
// pool at once, and a scan may happen at any instruction: it takes for free whatever is not noted
// yet.
#include <cerrno>

#include "library/annotate.hpp"
#include "library/include/reachscan.h"

struct reachscan_pool : reachscan::library::Pool {};

namespace reachscan::library {
namespace {

std::uint64_t bit_at(std::uint64_t address) {
  return std::uint64_t{1} << address / kPoolGranule % 64;
}

void set(std::uint64_t& word, std::uint64_t bits) {
  __atomic_fetch_or(&word, bits, __ATOMIC_RELEASE);
}

void clear(std::uint64_t& word, std::uint64_t bits) {
  if ((__atomic_load_n(&word, __ATOMIC_RELAXED) & bits) != 0)
    __atomic_fetch_and(&word, ~bits, __ATOMIC_RELEASE);
}

// Clears every start and end strictly between these.
void clear_between(Pool& pool, std::uint64_t start, std::uint64_t end) {
  std::uint64_t at = start + kPoolGranule;
  while (at < end) {
    std::uint64_t next = (at / kPoolSpan + 1) * kPoolSpan, bits = ~(bit_at(at) - 1);
    if (next > end) bits &= bit_at(end) - 1;
    clear(pool.bits(at).starts, bits);
    clear(pool.bits(at).ends, bits);
    at = next;
  }
}

// Returns where the object at `start` ends, or the next one starts.
std::uint64_t end_of(const Pool& pool, std::uint64_t start) {
  std::uint64_t at = start + kPoolGranule;
  for (std::uint64_t bits = ~(bit_at(at) - 1); at < pool.end; bits = ~std::uint64_t{0}) {
    const Pool::Bits& here = pool.bits(at);
    std::uint64_t edges = (here.starts | here.ends) & bits, base = at / kPoolSpan * kPoolSpan;
    if (edges != 0) return base + static_cast<unsigned>(__builtin_ctzll(edges)) * kPoolGranule;
    at = base + kPoolSpan;
  }
  return pool.end;
}

int refuse(int number) {
  errno = number;
  return -1;
}

}  // namespace
}  // namespace reachscan::library

using namespace reachscan::library;

reachscan_pool* reachscan_pool_create(const void* memory, size_t size) {
  auto start = reinterpret_cast<std::uint64_t>(memory), end = start + size;
  start = (start + kPoolGranule - 1) & ~(kPoolGranule - 1);
  end &= ~(kPoolGranule - 1);
  if (memory == nullptr || start >= end) {
    errno = EINVAL;
    return nullptr;
  }
  auto* pool = static_cast<Pool*>(map_unseen(pool_bytes(start, end), Kind::kPool));
  if (pool == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  pool->start = start;
  __atomic_store_n(&pool->end, end, __ATOMIC_RELEASE);
  return static_cast<reachscan_pool*>(pool);
}

void reachscan_pool_destroy(reachscan_pool* pool) {
  if (pool != nullptr) unmap_unseen(pool, pool_bytes(pool->start, pool->end), Kind::kPool);
}

int reachscan_pool_alloc(reachscan_pool* pool, const void* object, size_t size) {
  if (pool == nullptr) return refuse(EINVAL);
  auto start = reinterpret_cast<std::uint64_t>(object);
  if (start < pool->start || start >= pool->end) return refuse(EINVAL);
  std::uint64_t room = pool->end - start;
  if (start % kPoolGranule != 0 || size > room) {
    set(pool->unknown, 1);
    return refuse(EINVAL);
  }
  std::uint64_t end = (start + (size == 0 ? 1 : size) + kPoolGranule - 1) & ~(kPoolGranule - 1);
  // An existing object that gets another size never disappears in between.
  set(pool->bits(end).ends, bit_at(end));
  clear_between(*pool, start, end);
  set(pool->bits(start).starts, bit_at(start));
  return 0;
}

int reachscan_pool_free(reachscan_pool* pool, const void* object) {
  auto start = reinterpret_cast<std::uint64_t>(object);
  if (pool == nullptr || start < pool->start || start >= pool->end || start % kPoolGranule != 0 ||
      (pool->bits(start).starts & bit_at(start)) == 0)
    return refuse(EINVAL);
  std::uint64_t end = end_of(*pool, start);
  clear(pool->bits(start).starts, bit_at(start));
  clear(pool->bits(end).ends, bit_at(end));
  return 0;
}
