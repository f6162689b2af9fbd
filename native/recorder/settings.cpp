// Reads from the environment how to record.
#include "recorder/settings.hpp"

namespace reachscan::recorder {

namespace {

class Line {
 public:
  explicit Line(const char*& text) : at_(text) {
    while (*text != 0 && *text != '\n') ++text;
    end_ = text;
    if (*text != 0) ++text;
  }

  bool is_empty() const { return at_ == end_; }

  // Skips `name` and "=" if the line starts with them.
  bool begins(const char* name) {
    const char* c = at_;
    while (*name != 0 && c < end_ && *c == *name) ++c, ++name;
    if (*name != 0 || c == end_ || *c != '=') return false;
    at_ = c + 1;
    return true;
  }

  template <typename Number>
  bool number(Number& value) {
    const char* first = at_;
    std::uint64_t sum = 0;
    for (; at_ < end_ && *at_ >= '0' && *at_ <= '9'; ++at_)
      sum = sum * 10 + static_cast<std::uint64_t>(*at_ - '0');
    value = static_cast<Number>(sum);
    return at_ > first && static_cast<std::uint64_t>(value) == sum;
  }

  bool skip(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  template <std::size_t N>
  bool text(char (&value)[N]) {
    std::size_t i = 0;
    for (; at_ < end_; ++at_, ++i) {
      if (i + 1 == N) return false;
      value[i] = *at_;
    }
    value[i] = 0;
    return i > 0;
  }

 private:
  const char* at_;
  const char* end_;
};

bool read_ranges(Line& line, Options& options) {
  do {
    if (options.range_count == kMaxRanges) return false;
    SizeRange& range = options.ranges[options.range_count++];
    if (!line.number(range.first) || !line.skip('-') || !line.number(range.last)) return false;
  } while (line.skip(','));
  return true;
}

bool read_pattern(Line& line, Pattern& pattern) {
  do {
    Pattern::Step step;
    if (!line.number(step.kind) || !line.skip(',') || !line.number(step.first) || !line.skip(',') ||
        !line.number(step.second) || !pattern.add(step))
      return false;
  } while (line.skip(';'));
  return true;
}

bool read_line(Line& line, Settings& settings) {
  Options& options = settings.options;
  if (line.begins("way")) return line.number(options.way_in);
  if (line.begins("depth"))
    return line.number(options.depth) && options.depth > 0 && options.depth <= kMaxDepth;
  if (line.begins("stacks")) return line.number(options.stacks);
  if (line.begins("min-size")) return line.number(options.min_size);
  if (line.begins("sizes")) return read_ranges(line, options);
  if (line.begins("sample")) return line.number(options.sample);
  if (line.begins("stop-at")) return line.number(options.stop_at);
  if (line.begins("mmap")) return line.number(options.with_mappings);
  if (line.begins("memory")) return line.number(settings.memory);
  if (line.begins("module")) return read_pattern(line, settings.modules);
  if (line.begins("thread")) return read_pattern(line, settings.threads);
  if (line.begins("signal")) return line.number(settings.signal);
  if (line.begins("parent")) return line.number(settings.parent);
  return line.begins("notice") && line.text(settings.notice);
}

}  // namespace

bool read_settings(const char* text, Settings& settings) {
  settings.options.way_in = WayIn::kRun;
  settings.options.depth = 32;
  while (*text != 0) {
    Line line(text);
    if (!line.is_empty() && !(read_line(line, settings) && line.is_empty())) return false;
  }
  settings.options.modules_filtered = settings.modules.is_given() ? 1 : 0;
  settings.options.threads_filtered = settings.threads.is_given() ? 1 : 0;
  return true;
}

}  // namespace reachscan::recorder
