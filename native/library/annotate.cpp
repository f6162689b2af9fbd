// The table of annotations: open addressing, without locks. Claims an entry by its second word.
#include "library/annotate.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>

namespace reachscan::library {
namespace {

constexpr char kName[] = "reachscan annotations";

std::atomic<Header*> table{nullptr};
std::atomic<unsigned> kinds_seen{0};

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_size() - 1) & ~(page_size() - 1);
}

// The table is between guard pages.
Header* map_table() {
  std::size_t guard = page_size(), bytes = whole_pages(kBytes);
  void* memory = mmap(nullptr, bytes + 2 * guard, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* header = reinterpret_cast<Header*>(static_cast<char*>(memory) + guard);
  if (mprotect(header, bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(memory, bytes + 2 * guard);
    return nullptr;
  }
  // Kernels that cannot name it leave it unnamed.
  prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, header, kBytes, kName);
  header->layout = kLayout;
  header->bytes = kBytes;
  header->magic = kMagic;
  __atomic_store_n(&header->ready, 1, __ATOMIC_RELEASE);
  return header;
}

Header* existing_or_new() {
  Header* header = table.load(std::memory_order_acquire);
  if (header != nullptr) return header;
  Header* made = map_table();
  if (made == nullptr || table.compare_exchange_strong(header, made)) return made;
  munmap(reinterpret_cast<char*>(made) - page_size(), whole_pages(kBytes) + 2 * page_size());
  return header;
}

Entry* entries_of(Header* header) { return reinterpret_cast<Entry*>(header + 1); }

std::uint64_t load(const Entry& entry) {
  return __atomic_load_n(&entry.kind_size, __ATOMIC_ACQUIRE);
}

bool claim(Entry& entry, std::uint64_t found) {
  return __atomic_compare_exchange_n(&entry.kind_size, &found, Entry::pack(Kind::kBusy, 0), false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

}  // namespace

bool annotate(Kind kind, const void* start, std::size_t size) {
  Header* header = existing_or_new();
  if (header == nullptr) return false;
  kinds_seen.fetch_or(1u << static_cast<unsigned>(kind));
  auto address = reinterpret_cast<std::uint64_t>(start);
  std::uint64_t at = home_of(address);
  for (std::uint64_t probe = 0; probe < kMaxProbes; ++probe, at = (at + 1) % kEntries) {
    std::uint64_t page = at / kPageEntries;
    Entry& entry = entries_of(header)[at];
    std::uint64_t found = load(entry);
    bool is_free = found == 0 || Entry::kind(found) == Kind::kRemoved;
    if (!is_free || !claim(entry, found)) continue;
    __atomic_fetch_or(&header->used[page / 64], std::uint64_t{1} << page % 64, __ATOMIC_RELAXED);
    entry.start = address;
    __atomic_store_n(&entry.kind_size, Entry::pack(kind, size), __ATOMIC_RELEASE);
    return true;
  }
  __atomic_fetch_add(&header->lost, 1, __ATOMIC_RELAXED);
  return false;
}

bool forget(Kind kind, const void* start) {
  Header* header = table.load(std::memory_order_acquire);
  if (header == nullptr) return false;
  auto address = reinterpret_cast<std::uint64_t>(start);
  std::uint64_t at = home_of(address);
  bool was_found = false;
  for (std::uint64_t probe = 0; probe < kMaxProbes; ++probe, at = (at + 1) % kEntries) {
    Entry& entry = entries_of(header)[at];
    std::uint64_t found = load(entry);
    if (found == 0) break;
    if (Entry::kind(found) != kind || entry.start != address) continue;
    __atomic_store_n(&entry.kind_size, Entry::pack(Kind::kRemoved, 0), __ATOMIC_RELEASE);
    was_found = true;
  }
  return was_found;
}

bool has_annotations(Kind kind) {
  return (kinds_seen.load(std::memory_order_relaxed) >> static_cast<unsigned>(kind) & 1) != 0;
}

void announce_malloc(const void* code) {
  if (Header* header = existing_or_new())
    header->malloc_code = reinterpret_cast<std::uint64_t>(code);
}

void* map_unseen(std::size_t bytes, Kind kind) {
  bytes = whole_pages(bytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  if (annotate(kind, memory, bytes)) return memory;
  munmap(memory, bytes);
  return nullptr;
}

void unmap_unseen(void* memory, std::size_t bytes, Kind kind) {
  forget(kind, memory);
  munmap(memory, whole_pages(bytes));
}

}  // namespace reachscan::library
