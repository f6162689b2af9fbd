// Stacks that an allocator tells, joined to a trie.
#include "sweeper/blocks/backtraces.hpp"

#include <map>
#include <vector>

#include "check.hpp"
#include "graph.hpp"

namespace reachscan::tests {
namespace {

using sweeper::AskAllocator;
using sweeper::Backtraces;

// An allocator that knows these stacks, innermost frame first.
struct Allocator {
  std::map<uint64_t, std::vector<uint64_t>> stacks;
  const char* problem = nullptr;
  unsigned asked = 0;

  static const char* ask(void* self, const heaps::List<uint64_t>& blocks, AskAllocator::Note note,
                         void* context) {
    auto* allocator = static_cast<Allocator*>(self);
    ++allocator->asked;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      auto found = allocator->stacks.find(blocks[i]);
      if (found != allocator->stacks.end())
        note(context, i, found->second.data(), found->second.size());
    }
    return allocator->problem;
  }
};

struct Scene {
  explicit Scene(abi::Task task) { sweeper::control()->task = task; }

  uint32_t node(std::size_t block) { return backtraces.node_of(graph.start(block)); }
  std::vector<uint64_t>& stack(std::size_t block) { return allocator.stacks[graph.start(block)]; }

  Host host;
  Graph graph{4, 3};
  Allocator allocator;
  Backtraces backtraces{{&allocator, &Allocator::ask}, graph.blocks};
};

CASE(equal_stacks_have_one_node) {
  Scene scene(abi::Task::kFindLeaks);
  scene.stack(0) = scene.stack(1) = {10, 20};
  scene.stack(2) = {10, 21};
  scene.stack(3) = {20};
  CHECK(scene.node(0) != 0);
  CHECK_EQ(scene.node(1), scene.node(0));
  CHECK(scene.node(2) != scene.node(0));
  CHECK(scene.node(3) != scene.node(0));
  CHECK_EQ(scene.allocator.asked, 1u);
}

CASE(a_block_that_is_already_marked_is_asked_about_with_all_others) {
  Scene scene(abi::Task::kFindLeaks);
  for (std::size_t block = 0; block < 4; ++block) scene.stack(block) = {10};
  scene.graph.blocks.mark(scene.graph.start(2));
  for (std::size_t block : {2u, 0u, 3u, 1u}) CHECK(scene.node(block) != 0);
  CHECK_EQ(scene.allocator.asked, 1u);
}

CASE(what_is_no_address_is_left_out) {
  Scene scene(abi::Task::kFindLeaks);
  scene.stack(0) = {10, ~0ull, 0, 20};
  scene.stack(1) = {10, 20};
  CHECK_EQ(scene.node(0), scene.node(1));
}

CASE(an_allocator_that_fails_is_not_asked_again) {
  Scene scene(abi::Task::kExplain);  // blocks are asked about one by one
  scene.allocator.problem = "it crashes";
  scene.stack(0) = scene.stack(1) = {10};
  CHECK(scene.node(0) != 0);
  CHECK_EQ(scene.node(1), 0u);
  CHECK_EQ(scene.allocator.asked, 1u);
  CHECK_EQ(std::string(scene.backtraces.problem()), std::string("it crashes"));
}

}  // namespace
}  // namespace reachscan::tests
