// Which words of a block are behind the entries of a dictionary's keys.
#include "sweeper/stale/python_keys.hpp"

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

constexpr std::size_t kKeys = 0, kOther = 1;
constexpr uint64_t kOfAnything = 0, kOfTexts = 1, kShared = 2, kNone = 3;

struct Keys {
  uint64_t slot_bits, index_bits, kind, free, taken, words;
  uint64_t end;  // the first word behind the entries, or how many words there are
};

void put_keys(Graph& graph, const Keys& keys) {
  const uint64_t header[] = {1, keys.slot_bits | keys.index_bits << 8 | keys.kind << 16, keys.free,
                             keys.taken};
  for (std::size_t word = 0; word < std::size(header); ++word)
    graph.memory.put(graph.start(kKeys) + 8 * word, header[word]);
}

CASE(words_behind_the_entries_hold_nothing) {
  constexpr Keys kRows[] = {
      {3, 3, kOfAnything, 2, 3, 21, 20},
      {3, 3, kOfTexts, 0, 5, 17, 15},
      {8, 9, kShared, 28, 1, 409, 408},
      // No room for that many entries, or too much of it.
      {3, 3, kOfAnything, 2, 3, 19, 19},
      {3, 3, kOfTexts, 0, 5, 21, 21},
      // Each of the fields is wrong.
      {3, 4, kOfAnything, 2, 3, 21, 21},
      {3, 3, kNone, 2, 3, 21, 21},
      {3, 3, kOfAnything, 3, 3, 21, 21},
      {3, 3, kOfAnything, ~0ull, 3, 21, 21},
      {2, 2, kOfAnything, 1, 1, 11, 11},
      {32, 34, kOfAnything, 2, 3, 21, 21},
      {3, 3, kOfAnything, 0, 0, 3, 3},
  };
  for (const Keys& row : kRows) {
    Host host;
    Graph graph(std::vector<std::size_t>{row.words, 21});
    graph.blocks.mark(graph.start(kOther));
    if (row.words > 3) put_keys(graph, row);
    graph.point(kKeys, row.words - 1, kOther);
    sweeper::Targets targets(graph.memory.space(), graph.blocks);
    const sweeper::PythonKeys keys(graph.memory.space(), graph.blocks, targets);
    keys.look_at({graph.start(kKeys), graph.start(kKeys) + graph.bytes(kKeys)});
    CHECK_EQ(targets.empty(), row.end == row.words);
    for (std::size_t word = 0; word < graph.words(kKeys); ++word)
      CHECK_EQ(keys.end_before(graph.start(kKeys), graph.start(kKeys) + 8 * word), word >= row.end);
  }
}

}  // namespace
}  // namespace reachscan::tests
