// Parses fdinfo of io_uring, and uses the memory of a ring to find requests that cannot be read.
#include "helper/target/rings.hpp"

#include <algorithm>
#include <array>

#include "helper/target/memory_kinds.hpp"

namespace reachscan::helper {
namespace {

// IORING_OFF_SQES and struct io_uring_sqe of linux/io_uring.h.
constexpr std::uint64_t kOffsetOfRequests = 0x10000000;
using Request = std::array<std::uint64_t, 8>;

std::uint32_t number(const std::string& text, std::string_view key, int base = 10) {
  std::vector<std::uint64_t> found = numbers_after(text, key, base);
  return found.empty() ? 0 : static_cast<std::uint32_t>(found.front());
}

// Requests minus completions. Some requests have no completion and some have many, so this is not
// the number in flight; but if it is 0 and none is waiting, none is in flight.
std::int32_t unanswered(const Ring& ring) {
  return static_cast<std::int32_t>(ring.taken - ring.answered);
}

// True until a program that fills one entry after the other reaches the last one. A program that
// uses an entry twice leaves another one empty.
bool has_all_requests(const Ring& ring, const MapEntry& mapping, const Memory& memory) {
  if (ring.taken >= ring.entries) return false;
  std::vector<Request> requests(ring.entries);
  std::uint64_t bytes = requests.size() * sizeof(Request);
  if (bytes > mapping.end - mapping.start) return false;
  if (!memory.try_read(mapping.start, requests.data(), bytes)) return false;
  auto is_empty = [](const Request& request) { return request == Request{}; };
  return is_empty(requests.back()) &&
         std::none_of(requests.begin(), requests.begin() + ring.taken, is_empty);
}

bool may_have_lost_requests(const Ring& ring) {
  if (!ring.told) return true;
  if (unanswered(ring) == 0 && ring.waiting == 0) return false;
  return !ring.kept || unanswered(ring) < 0;
}

std::uint64_t requests_in_flight(const Rings& rings) {
  std::uint64_t sum = 0;
  for (const auto& [name, ring] : rings)
    if (may_have_lost_requests(ring))
      sum += std::max<std::uint64_t>(ring.waiting, std::max(unanswered(ring), 0));
  return sum;
}

// Returns whether requests were made and overwritten by others between two observations.
bool wrapped_around(const Ring* before, const Ring& after) {
  bool same = before != nullptr && before->inode == after.inode && before->taken <= after.taken;
  return after.taken - (same ? before->taken : 0) > after.entries;
}

}  // namespace

Ring parse_ring(const std::string& text) {
  Ring ring;
  // Older kernels do not print it, nor does any kernel while another thread uses the ring.
  ring.told = text.find("CachedCqTail:") != std::string::npos;
  ring.inode = number(text, "ino:");
  ring.entries = number(text, "SqMask:\t0x", 16) + 1;
  ring.taken = number(text, "CachedSqHead:");
  // Completions for which there is no room wait in a list.
  ring.answered = number(text, "CachedCqTail:") +
                  static_cast<std::uint32_t>(numbers_after(text, "user_data=", 10).size());
  ring.waiting = static_cast<std::uint32_t>(numbers_after(text, "  op=", 10).size());
  return ring;
}

void read_ring_memory(Rings& rings, const std::vector<MapEntry>& mappings, const Memory& memory) {
  for (const MapEntry& entry : mappings) {
    if (!is_ring(entry)) continue;
    bool known = false;
    for (auto& [name, ring] : rings) {
      if (ring.inode != entry.inode) continue;
      known = true;
      if (entry.offset == kOffsetOfRequests) ring.kept = has_all_requests(ring, entry, memory);
    }
    if (!known) rings[std::to_string(entry.start)] = {};
  }
}

std::string unread_requests(const Rings& before, const Rings& after) {
  bool hidden = false;
  for (const Rings* rings : {&before, &after})
    for (const auto& [name, ring] : *rings) hidden = hidden || may_have_lost_requests(ring);
  for (const auto& [name, ring] : after) {
    auto earlier = before.find(name);
    hidden = hidden || wrapped_around(earlier == before.end() ? nullptr : &earlier->second, ring);
  }
  if (!hidden) return {};
  std::uint64_t count = std::max(requests_in_flight(before), requests_in_flight(after));
  std::string some = count == 0
                         ? "may have requests"
                         : "has " + std::to_string(count) + (count == 1 ? " request" : " requests");
  return "io_uring " + some + " in flight whose words are in no memory";
}

}  // namespace reachscan::helper
