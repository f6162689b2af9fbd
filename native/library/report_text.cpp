// Leaks and reports as text, in the layout of libmemunreachable.
#include <dlfcn.h>

#include "library/include/reachscan.h"
#include "library/text.hpp"

namespace reachscan::library {
namespace {

constexpr std::size_t kRow = 16;

void write_amount(Text& text, const char* before, std::size_t bytes, const char* what,
                  std::size_t count) {
  if (count == 0) return;
  text.str("   ").str(before).number(bytes).str(what).count(count, "allocation").put('\n');
}

void write_row(Text& text, std::uint64_t address, const char* bytes, std::size_t count) {
  text.str("   ").hex(address).str(": ");
  for (std::size_t i = 0; i < kRow; ++i) {
    if (i < count) {
      text.hex(static_cast<unsigned char>(bytes[i]), 2).put(' ');
    } else {
      text.str("   ");
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    auto c = static_cast<unsigned char>(bytes[i]);
    text.put(c < 0x20 || c >= 0x7f ? '.' : static_cast<char>(c));
  }
  text.put('\n');
}

void write_contents(Text& text, const reachscan_leak& leak) {
  std::size_t shown = leak.size < REACHSCAN_CONTENTS ? leak.size : REACHSCAN_CONTENTS;
  if (shown < leak.size) {
    text.str("   first ").number(shown).str(" bytes of contents:\n");
  } else {
    text.str("   contents:\n");
  }
  for (std::size_t at = 0; at < shown; at += kRow)
    write_row(text, leak.begin + at, leak.contents + at, shown - at < kRow ? shown - at : kRow);
}

void write_frames(Text& text, const reachscan_leak& leak) {
  for (std::size_t i = 0; i < leak.backtrace.num_frames; ++i) {
    std::uintptr_t pc = leak.backtrace.frames[i];
    text.str("          #").str(i < 10 ? "0" : "").number(i).str("  pc ").hex(pc, 16);
    Dl_info info;
    // A return address may be past the end of its function.
    if (dladdr(reinterpret_cast<void*>(pc - 1), &info) != 0 && info.dli_fname != nullptr) {
      text.str("  ").str(info.dli_fname);
      if (info.dli_sname != nullptr)
        text.str(" (")
            .str(info.dli_sname)
            .put('+')
            .number(pc - reinterpret_cast<std::uintptr_t>(info.dli_saddr))
            .put(')');
    }
    text.put('\n');
  }
}

void write_leak(Text& text, const reachscan_leak& leak, bool contents) {
  text.str("  ").number(leak.size).str(leak.is_possible ? " bytes possibly" : " bytes");
  text.str(" unreachable at ").hex(leak.begin).put('\n');
  write_amount(text, "referencing ", leak.referenced_size, " unreachable bytes in ",
               leak.referenced_count);
  write_amount(text, "and ", leak.similar_size, " similar unreachable bytes in ",
               leak.similar_count);
  write_amount(text, "referencing ", leak.similar_referenced_size, " unreachable bytes in ",
               leak.similar_referenced_count);
  if (contents) write_contents(text, leak);
  write_frames(text, leak);
}

}  // namespace
}  // namespace reachscan::library

using namespace reachscan::library;

size_t reachscan_leak_text(const reachscan_leak* leak, bool contents, char* buffer, size_t size) {
  Text text(buffer, size);
  write_leak(text, *leak, contents);
  return text.length();
}

size_t reachscan_report_text(const reachscan_report* report, bool contents, char* buffer,
                             size_t size) {
  Text text(buffer, size);
  text.str("  ").number(report->leak_bytes).str(" bytes in ");
  text.count(report->num_leaks, "unreachable allocation").put('\n');
  text.str("  ABI: '").str(REACHSCAN_ABI).str("'\n\n");
  for (size_t i = 0; i < report->listed; ++i) {
    write_leak(text, report->leaks[i], contents);
    text.put('\n');
  }
  return text.length();
}
