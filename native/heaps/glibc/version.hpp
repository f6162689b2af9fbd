// The library's own name, for the report only: no decision depends on it.
#pragma once

#include "heaps/glibc/layout.hpp"

namespace reachscan::heaps::glibc {

inline bool matches(uint64_t address, const char* text, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i)
    if (load<char>(address + i) != text[i]) return false;
  return true;
}

// Returns the text after " release version " in the library's banner ("... stable release version
// 2.36."), up to the end of its mapping. Searches only mappings with these permissions; empty if it
// is not found.
inline Range find_version(const Space& space, const Instance& instance, uint32_t perms) {
  constexpr char kBanner[] = " release version ";
  constexpr std::size_t kBannerLength = sizeof kBanner - 1;
  for (const abi::Mapping& m : space) {
    if (m.perms != perms || m.file != instance.file) continue;
    for (uint64_t at = m.start; at + kBannerLength + 8 < m.end; ++at)
      if (load<char>(at) == ' ' && matches(at, kBanner, kBannerLength))
        return {at + kBannerLength, m.end};
  }
  return {0, 0};
}

// Writes "glibc 2.36", or "glibc" if the banner is missing.
inline void write_name(const Space& space, const Instance& instance, char (&name)[kNameLength]) {
  constexpr char kPrefix[] = "glibc";
  std::size_t length = 0;
  for (; kPrefix[length] != 0; ++length) name[length] = kPrefix[length];
  name[length] = 0;
  Range text = find_version(space, instance, wire::kRead);
  // Older linkers put constants next to the code.
  if (text.start == text.end) text = find_version(space, instance, wire::kRead | wire::kExecute);
  if (text.start == text.end) return;
  name[length++] = ' ';
  for (uint64_t digit = text.start; length + 1 < kNameLength && digit + 1 < text.end; ++digit) {
    char c = load<char>(digit);
    bool part = (c >= '0' && c <= '9') ||
                (c == '.' && load<char>(digit + 1) >= '0' && load<char>(digit + 1) <= '9');
    if (!part) break;
    name[length++] = c;
  }
  name[length] = 0;
}

}  // namespace reachscan::heaps::glibc
