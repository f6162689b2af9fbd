// Time, as cheaply as the kernel provides it: accurate to some milliseconds.
#pragma once

#include <time.h>

#include "recorder/images.hpp"
#include "recorder/kernel.hpp"

namespace reachscan::recorder {

class Clock {
 public:
  Clock() = default;
  // `library` is the address of the vdso (AT_SYSINFO_EHDR), or 0.
  explicit Clock(std::uint64_t library) {
    Image image;
    if (library == 0 || !image_at(library, image)) return;
    image.bias = library - first_address(image);
    read_ = reinterpret_cast<Read>(Symbols(image).find(arch::kReadClock));
  }

  std::uint64_t nanoseconds(int clock) const {
    struct {
      std::int64_t seconds, nanoseconds;
    } now{};
    if (read_ == nullptr || read_(clock, &now) != 0) call(__NR_clock_gettime, clock, as_word(&now));
    return static_cast<std::uint64_t>(now.seconds) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.nanoseconds);
  }

  std::uint64_t monotonic() const { return nanoseconds(CLOCK_MONOTONIC_COARSE); }
  std::uint64_t realtime() const { return nanoseconds(CLOCK_REALTIME); }

 private:
  using Read = int (*)(int clock, void* time);

  static std::uint64_t first_address(const Image& image) {
    std::uint64_t first = ~std::uint64_t{0};
    image.each(PT_LOAD, [&](const Elf64_Phdr& header) {
      if (header.p_vaddr < first) first = header.p_vaddr;
    });
    return first;
  }

  Read read_ = nullptr;
};

}  // namespace reachscan::recorder
