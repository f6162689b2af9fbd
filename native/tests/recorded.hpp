// Writes what a recorder would leave in memory.
#pragma once

#include "memory.hpp"
#include "recorder/tables.hpp"

namespace reachscan::tests {

class Recorded {
 public:
  // Tables of the process `pid` at `at`, between inaccessible pages.
  Recorded(Memory& memory, uint64_t at, uint32_t pid);

  // Returns its number.
  uint32_t node(uint32_t parent, uint64_t pc);
  // A node in a module that has since been closed.
  uint32_t closed_node(uint32_t parent, uint64_t pc, uint32_t module);
  uint32_t thread(const char* name, uint32_t tid);
  uint32_t closed_module(const char* path, uint64_t bias);
  uint32_t python_function(uint32_t row, const char* name, const char* file);
  void mapping(const recorder::MappingRow& row);
  void add(const recorder::Allocation& allocation);

  recorder::Header& header() { return tables_.header(); }
  recorder::Tables& tables() { return tables_; }

  static constexpr uint64_t kBytes = 16 * arch::kPage;

 private:
  recorder::Tables tables_;
};

}  // namespace reachscan::tests
