// Webs that have blocks in common are judged together, in whatever order their heads come.
#include "sweeper/stale/webs.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "check.hpp"
#include "hosted.hpp"

namespace reachscan::tests {
namespace {

struct Totals {
  std::size_t blocks, strange;
  bool operator==(const Totals&) const = default;
};

using Children = std::map<uint64_t, std::vector<uint64_t>>;

// Returns the totals for each block in a web. Blocks with odd numbers are strange.
std::map<uint64_t, Totals> totals_of(const heaps::List<uint64_t>& blocks, const Children& children,
                                     const std::vector<uint64_t>& heads) {
  sweeper::Webs webs(blocks);
  for (uint64_t head : heads)
    webs.add(head, [&](uint64_t block) {
      if (block % 2 != 0) webs.count_strange();
      if (auto found = children.find(block); found != children.end())
        for (uint64_t child : found->second) webs.enter(child);
    });
  std::map<uint64_t, Totals> totals;
  webs.each([&](const uint64_t* web, const uint64_t* end, std::size_t all, std::size_t strange) {
    CHECK(std::find(heads.begin(), heads.end(), *web) != heads.end());
    for (; web != end; ++web) CHECK(totals.emplace(*web, Totals{all, strange}).second);
  });
  return totals;
}

heaps::List<uint64_t> first_blocks(std::size_t count) {
  heaps::List<uint64_t> blocks(sweeper::map_memory, count);
  for (uint64_t block = 1; block <= count; ++block) blocks.push(block);
  return blocks;
}

CASE(a_web_has_what_its_head_leads_to) {
  Host host;
  heaps::List<uint64_t> blocks = first_blocks(6);
  auto totals = totals_of(blocks, {{1, {2, 3}}, {3, {1, 4}}, {5, {4}}}, {1});
  CHECK((totals == std::map<uint64_t, Totals>{{1, {4, 2}}, {2, {4, 2}}, {3, {4, 2}}, {4, {4, 2}}}));
}

CASE(the_order_of_heads_does_not_matter) {
  constexpr std::size_t kBlocks = 60, kHeads = 12;
  Host host;
  std::mt19937_64 random(5);
  heaps::List<uint64_t> blocks = first_blocks(kBlocks);
  for (int round = 0; round < 200; ++round) {
    Children children;
    for (int link = 0; link < 45; ++link)
      children[1 + random() % kBlocks].push_back(1 + random() % kBlocks);
    std::vector<uint64_t> heads;
    for (std::size_t i = 0; i < kHeads; ++i) heads.push_back(1 + random() % kBlocks);
    auto totals = totals_of(blocks, children, heads);
    std::shuffle(heads.begin(), heads.end(), random);
    CHECK(totals == totals_of(blocks, children, heads));
    for (const auto& [block, children_of] : children)
      if (totals.count(block) != 0)
        for (uint64_t child : children_of) CHECK(totals.at(child) == totals.at(block));
  }
}

}  // namespace
}  // namespace reachscan::tests
