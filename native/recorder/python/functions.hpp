// The Python functions named in stacks, as the recorder writes them: a hash table of rows that only
// grows, without locks.
#pragma once

#include "recorder/python/text.hpp"
#include "recorder/tables.hpp"

namespace reachscan::recorder {

class PythonFunctions {
 public:
  PythonFunctions() = default;
  explicit PythonFunctions(const Tables& tables)
      : rows_(tables.functions()), count_(tables.header().functions.count) {}

  // Returns the row of the function, 0 if there is no room. Two files may have functions of one
  // name.
  std::uint32_t intern(const PythonText& name, const PythonText& file) {
    std::uint64_t hash = file.hash(name.hash(1)) | 1;  // 0: the row is free
    std::uint64_t at = static_cast<std::uint64_t>(
        static_cast<unsigned __int128>(hash * 0xd6e8'feb8'6659'fd93) * count_ >> 64);
    for (std::size_t probe = 0; probe < kMaxSteps; ++probe, at = at + 1 == count_ ? 0 : at + 1) {
      if (at == 0) continue;
      PythonFunction& row = rows_[at];
      std::uint64_t held = 0;
      if (__atomic_compare_exchange_n(&row.hash, &held, hash, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)) {
        name.write(row.name);
        file.write(row.file);
        __atomic_store_n(&row.ready, 1, __ATOMIC_RELEASE);
        held = hash;
      }
      if (held == hash) return static_cast<std::uint32_t>(at);
    }
    return 0;
  }

 private:
  static constexpr std::size_t kMaxSteps = 64;

  PythonFunction* rows_ = nullptr;
  std::uint64_t count_ = 0;
};

}  // namespace reachscan::recorder
