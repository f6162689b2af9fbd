// Reads REACHSCAN_AT_EXIT, REACHSCAN_EXITCODE, REACHSCAN_SIGNAL, REACHSCAN_REPORT and
// REACHSCAN_OPTIONS.
#include "library/settings.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

#include "library/text.hpp"

namespace reachscan::library {
namespace {

constexpr std::size_t kDefaultLimit = 100;

struct SignalName {
  const char* name;
  int number;
};
constexpr SignalName kSignals[] = {{"HUP", SIGHUP},   {"QUIT", SIGQUIT},   {"USR1", SIGUSR1},
                                   {"USR2", SIGUSR2}, {"ALRM", SIGALRM},   {"URG", SIGURG},
                                   {"PROF", SIGPROF}, {"WINCH", SIGWINCH}, {"IO", SIGIO}};

void complain(const char* variable, const char* word, std::size_t length,
              const char* why = "is not understood") {
  char line[256];
  Text text(line, sizeof line);
  text.str("reachscan: ").str(variable).str(": '").str(word, length).str("' ").str(why).str("\n");
  std::size_t shown = text.length() < sizeof line ? text.length() : sizeof line - 1;
  if (write(STDERR_FILENO, line, shown) < 0) return;  // stderr is closed
}

// Returns false if it is not a number, or too large.
bool read_number(const char* word, std::size_t length, unsigned& value) {
  std::uint64_t sum = 0;
  if (length == 0 || length > 9) return false;
  for (std::size_t i = 0; i < length; ++i) {
    if (word[i] < '0' || word[i] > '9') return false;
    sum = 10 * sum + static_cast<unsigned>(word[i] - '0');
  }
  value = static_cast<unsigned>(sum);
  return true;
}

int signal_of(const char* word) {
  unsigned number = 0;
  if (read_number(word, std::strlen(word), number)) return static_cast<int>(number);
  if (std::strncmp(word, "SIG", 3) == 0) word += 3;
  for (const SignalName& known : kSignals)
    if (std::strcmp(known.name, word) == 0) return known.number;
  complain("REACHSCAN_SIGNAL", word, std::strlen(word));
  return 0;
}

// The words of REACHSCAN_OPTIONS, in sequence.
class Words {
 public:
  explicit Words(const char* text) : at_(text) { next(); }

  void next() {
    at_ += length;
    at_ += std::strspn(at_, " \t");
    length = std::strcspn(at_, " \t");
    word = at_;
  }
  bool is(const char* option) const {
    return std::strlen(option) == length && std::memcmp(word, option, length) == 0;
  }

  const char* word = nullptr;
  std::size_t length = 0;

 private:
  const char* at_;
};

bool take_number(Words& words, unsigned& value) {
  words.next();
  return read_number(words.word, words.length, value);
}

bool take_option(Words& words, Settings& settings) {
  unsigned value = 0;
  if (words.is("--max-pause")) return take_number(words, settings.options.max_pause_ms);
  if (words.is("--timeout")) return take_number(words, settings.options.timeout_s);
  if (words.is("--limit")) {
    if (!take_number(words, value)) return false;
    settings.options.limit = value;
    return true;
  }
  if (words.is("--contents")) {
    if (!take_number(words, value)) return false;
    settings.contents = value > 0;
    return true;
  }
  if (!words.is("--method")) return false;
  words.next();
  if (words.length == 0 || words.length >= sizeof settings.method) return false;
  std::memcpy(settings.method, words.word, words.length);
  settings.options.method = settings.method;
  return true;
}

void read_options(const char* text, Settings& settings) {
  for (Words words(text); words.length > 0; words.next())
    if (!take_option(words, settings)) complain("REACHSCAN_OPTIONS", words.word, words.length);
}

void read_environment(Settings& settings) {
  settings.options.limit = kDefaultLimit;
  if (const char* at_exit = getenv("REACHSCAN_AT_EXIT")) {
    settings.at_exit = std::strcmp(at_exit, "1") == 0;
    if (!settings.at_exit && at_exit[0] != 0 && std::strcmp(at_exit, "0") != 0)
      complain("REACHSCAN_AT_EXIT", at_exit, std::strlen(at_exit), "is neither 0 nor 1");
  }
  if (const char* code = getenv("REACHSCAN_EXITCODE")) {
    unsigned value = 0;
    if (read_number(code, std::strlen(code), value) && value <= 255) {
      settings.exit_code = static_cast<int>(value);
    } else {
      complain("REACHSCAN_EXITCODE", code, std::strlen(code));
    }
  }
  if (const char* signal = getenv("REACHSCAN_SIGNAL")) settings.signal = signal_of(signal);
  if (const char* path = getenv("REACHSCAN_REPORT"))
    Text(settings.report, sizeof settings.report).str(path);
  if (const char* options = getenv("REACHSCAN_OPTIONS")) read_options(options, settings);
}

int open_report(const char* pattern) {
  char path[4096 + 16];
  Text text(path, sizeof path);
  for (const char* c = pattern; *c != 0; ++c) {
    if (c[0] == '%' && c[1] == 'p') {
      text.number(static_cast<std::uint64_t>(getpid()));
      ++c;
    } else {
      text.put(*c);
    }
  }
  return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

}  // namespace

const Settings& settings() {
  static Settings read;
  static bool done = false;
  if (!done) {
    done = true;  // first called while there is one thread
    read_environment(read);
  }
  return read;
}

int check_by_settings(Told told) {
  const Settings& all = settings();
  int file = all.report[0] != 0 ? open_report(all.report) : -1;
  if (all.report[0] != 0 && file < 0)
    complain("REACHSCAN_REPORT", all.report, std::strlen(all.report),
             "cannot be written; the report goes to stderr");
  int result = check_and_print(all.options, all.contents, file >= 0 ? file : STDERR_FILENO, told);
  if (file >= 0) close(file);
  return result;
}

}  // namespace reachscan::library
