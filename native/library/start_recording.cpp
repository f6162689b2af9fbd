// Starts and stops recording the allocations of the process: the helper does this as it does for
// other processes.
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "library/helper_process.hpp"
#include "library/include/reachscan.h"
#include "library/result_reader.hpp"
#include "library/text.hpp"

namespace reachscan::library {
namespace {

constexpr std::size_t kSettings = 1024;
constexpr std::size_t kError = 512;

// An option of `reachscan attach`, and its name in the recorder's settings.
struct Option {
  const char* word;
  const char* setting;
};
constexpr Option kOptions[] = {{"--min-size", "min-size"}, {"--sample", "sample"},
                               {"--depth", "depth"},       {"--memory", "memory"},
                               {"--stop-at", "stop-at"},   {"--sizes", "sizes"}};

// Writes the settings of the recorder, one per line.
class SettingsText {
 public:
  // Without any settings, the helper would scan.
  explicit SettingsText(const char* options) : at_(options) { settings_.str("depth=32\n"); }

  // Returns false if an option is not understood; it is the current word then.
  bool write() {
    while (next_word()) {
      const Option* known = nullptr;
      for (const Option& option : kOptions)
        if (is(option.word)) known = &option;
      if (known == nullptr) return false;
      settings_.str(known->setting).put('=');
      if (!next_word() || !write_sizes(std::strcmp(known->setting, "sizes") == 0)) return false;
      settings_.put('\n');
    }
    return settings_.length() < sizeof text_;
  }

  char* settings() { return text_; }
  const char* word() const { return word_; }
  std::size_t length() const { return length_; }

 private:
  bool next_word() {
    word_ = at_ + std::strspn(at_, " \t");
    length_ = std::strcspn(word_, " \t");
    at_ = word_ + length_;
    return length_ > 0;
  }

  bool is(const char* text) const {
    return std::strlen(text) == length_ && std::memcmp(word_, text, length_) == 0;
  }

  // A number, or with `ranges` numbers and ranges of them; a single number is a range, too.
  bool write_sizes(bool ranges) {
    const char* c = word_;
    for (;;) {
      std::uint64_t first = 0, last = 0;
      if (!read_size(c, first)) return false;
      last = first;
      if (ranges && *c == '-' && (!read_size(++c, last) || last < first)) return false;
      settings_.number(first);
      if (!ranges) return c == word_ + length_;
      settings_.put('-').number(last);
      if (c == word_ + length_) return true;
      if (*c++ != ',') return false;
      settings_.put(',');
    }
  }

  // Reads digits, and a unit of K, M or G after them.
  bool read_size(const char*& c, std::uint64_t& size) {
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 40;
    const char* first = c;
    for (; *c >= '0' && *c <= '9' && size < kLargest; ++c)
      size = 10 * size + static_cast<std::uint64_t>(*c - '0');
    if (c == first) return false;
    for (const char* unit = "KMG"; *unit != 0; ++unit)
      if (*c == *unit) {
        size <<= 10 * (unit - "KMG" + 1);
        ++c;
        break;
      }
    return size < kLargest;
  }

  const char* at_;
  const char* word_ = nullptr;
  std::size_t length_ = 0;
  char text_[kSettings];
  Text settings_{text_, sizeof text_};
};

int refuse(const char* sentence) {
  char line[kError + 32];
  Text text(line, sizeof line);
  text.str("reachscan: ").str(sentence).str("\n");
  std::size_t shown = text.length() < sizeof line ? text.length() : sizeof line - 1;
  if (write(STDERR_FILENO, line, shown) < 0) return -1;  // stderr is closed
  return -1;
}

// Makes the helper do what `words` say.
int run_helper(const char* const* words) {
  int before = errno;
  char error[kError] = {};
  HelperProcess helper;
  bool is_done = helper.start({}, error, sizeof error, words) &&
                 ResultReader(helper, error, sizeof error).read();
  errno = before;
  return is_done ? 0 : refuse(error);
}

}  // namespace
}  // namespace reachscan::library

using namespace reachscan::library;

extern "C" int reachscan_start_recording(const char* options) {
  SettingsText text(options != nullptr ? options : "");
  if (!text.write()) {
    char error[kError];
    Text(error, sizeof error)
        .str("reachscan_start_recording: '")
        .str(text.word(), text.length())
        .str("' is not understood");
    return refuse(error);
  }
  const char* words[] = {"--attach", text.settings(), nullptr};
  return run_helper(words);
}

extern "C" int reachscan_stop_recording(void) {
  const char* words[] = {"--detach", nullptr};
  return run_helper(words);
}
