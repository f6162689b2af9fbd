// Checks the header of a ring of completions before reading them.
#include "helper/target/completions.hpp"

#include <linux/aio_abi.h>

namespace reachscan::helper {
namespace {

// struct aio_ring of fs/aio.c, which libaio reads too.
struct CompletionRing {
  std::uint32_t id;
  std::uint32_t entries;
  std::uint32_t head;  // the first pending one
  std::uint32_t tail;  // after the last one
  std::uint32_t magic;
  std::uint32_t features[2];
  std::uint32_t header_length;
};
constexpr std::uint32_t kMagic = 0xa10a10a1;

}  // namespace

void add_completions(const MapEntry& context, const Memory& memory,
                     std::vector<std::uint64_t>& words) {
  CompletionRing ring;
  if (!memory.try_read(context.start, &ring, sizeof ring) || ring.magic != kMagic) return;
  std::uint64_t room = context.end - context.start;
  if (ring.header_length > room || ring.head >= ring.entries || ring.tail >= ring.entries) return;
  if (ring.entries > (room - ring.header_length) / sizeof(io_event)) return;
  for (std::uint32_t i = ring.head; i != ring.tail; i = (i + 1) % ring.entries) {
    io_event completion;
    std::uint64_t at = context.start + ring.header_length + i * sizeof completion;
    if (!memory.try_read(at, &completion, sizeof completion)) return;
    words.insert(words.end(), {completion.data, completion.obj});
  }
}

}  // namespace reachscan::helper
