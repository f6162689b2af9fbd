// The library's own name, for the report only: no decision depends on it.
#pragma once

#include "heaps/glibc/layout.hpp"

namespace reachscan::heaps::glibc {

inline bool matches(uint64_t address, const char* text, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i)
    if (load<char>(address + i) != text[i]) return false;
  return true;
}

// Writes "glibc 2.36", or "glibc" if the banner ("... stable release version 2.36.") is missing.
inline void write_name(const Space& space, const Instance& instance, char (&name)[kNameLength]) {
  constexpr char kBanner[] = " release version ";
  constexpr std::size_t kBannerLength = sizeof kBanner - 1;
  constexpr char kPrefix[] = "glibc";
  std::size_t length = 0;
  for (; kPrefix[length] != 0; ++length) name[length] = kPrefix[length];
  name[length] = 0;
  for (const abi::Mapping& m : space) {
    if (m.perms != wire::kRead || m.file != instance.file) continue;
    for (uint64_t at = m.start; at + kBannerLength + 8 < m.end; ++at) {
      if (load<char>(at) != ' ' || !matches(at, kBanner, kBannerLength)) continue;
      name[length++] = ' ';
      for (uint64_t digit = at + kBannerLength; length + 1 < kNameLength && digit + 1 < m.end;
           ++digit) {
        char c = load<char>(digit);
        bool part = (c >= '0' && c <= '9') ||
                    (c == '.' && load<char>(digit + 1) >= '0' && load<char>(digit + 1) <= '9');
        if (!part) break;
        name[length++] = c;
      }
      name[length] = 0;
      return;
    }
  }
}

}  // namespace reachscan::heaps::glibc
