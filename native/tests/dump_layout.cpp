// Prints what Python repeats of wire/*.hpp and libc/*.hpp, as JSON; test_wire_layout.py compares it.
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <string>

#include "libc/thread_descriptor.hpp"
#include "wire/failures.hpp"
#include "wire/protocol.hpp"
#include "wire/steps.hpp"

namespace wire = reachscan::wire;

namespace {

struct Item {
  const char* name;
  unsigned long value;
};

template <typename Items>
void print(const char* name, const Items& items, const char* end = ",\n") {
  std::printf("  \"%s\": {", name);
  const char* separator = "";
  for (const Item& item : items) {
    std::printf("%s\"%s\": %lu", separator, item.name, item.value);
    separator = ", ";
  }
  std::printf("}%s", end);
}

constexpr Item kRecords[] = {{"TARGET", wire::kTarget},
                             {"MAPPINGS", wire::kMappings},
                             {"MODULES", wire::kModules},
                             {"THREADS", wire::kThreads},
                             {"SNAPSHOT", wire::kSnapshot},
                             {"HEAP", wire::kHeap},
                             {"REGIONS", wire::kRegions},
                             {"LEAKS", wire::kLeaks},
                             {"TYPES", wire::kTypes},
                             {"PROGRESS", wire::kProgress},
                             {"WARNING", wire::kWarning},
                             {"FAILURE", wire::kFailure},
                             {"FINAL", wire::kFinal},
                             {"NAMES", wire::kNames},
                             {"CONTENTS", wire::kContents},
                             {"DOUBTS", wire::kDoubts},
                             {"SHAPES", wire::kShapes},
                             {"DIGESTS", wire::kDigests},
                             {"KINDS", wire::kKinds},
                             {"BLOCK", wire::kBlock},
                             {"REFERENCES", wire::kReferences},
                             {"CHAIN", wire::kChain},
                             {"WORD_OWNERS", wire::kWordOwners},
                             {"CONFIRMATION", wire::kConfirmation},
                             {"SIGHTINGS", wire::kSightings},
                             {"ABSENT", wire::kAbsent},
                             {"WITHHELD", wire::kWithheld}};
constexpr Item kPhases[] = {{"freeze", wire::kFreeze}, {"quiesce", wire::kQuiesce},
                            {"clone", wire::kClone},   {"enumerate", wire::kEnumerate},
                            {"mark", wire::kMark},     {"collect", wire::kCollect}};
constexpr Item kConstants[] = {{"VERSION", wire::kVersion},
                               {"LITTLE_ENDIAN", wire::kLittleEndian},
                               {"WORD_SIZE", sizeof(void*)},
                               {"MAX_PAYLOAD", wire::kMaxPayload},
                               {"DIRECT", wire::kDirect},
                               {"LEAD_WORDS", wire::kLeadWords},
                               {"PROGRAM_BREAK", wire::kProgramBreak},
                               {"THREAD_HEAP", wire::kThreadHeap},
                               {"MAPPED", wire::kMapped},
                               {"READ", wire::kRead},
                               {"WRITE", wire::kWrite},
                               {"EXECUTE", wire::kExecute},
                               {"SHARED", wire::kShared},
                               {"APART", wire::kApart},
                               {"DESCRIPTOR", reachscan::libc::kDescriptorBytes}};
constexpr Item kHello[] = {{"size", sizeof(wire::Hello)},
                           {"magic", offsetof(wire::Hello, magic)},
                           {"version", offsetof(wire::Hello, version)},
                           {"byte_order", offsetof(wire::Hello, byte_order)},
                           {"word_size", offsetof(wire::Hello, word_size)},
                           {"reserved", offsetof(wire::Hello, reserved)}};
constexpr Item kFrame[] = {{"size", sizeof(wire::FrameHeader)},
                           {"type", offsetof(wire::FrameHeader, type)},
                           {"length", offsetof(wire::FrameHeader, length)}};

#define NAME(member, name) name,
constexpr const char* kFailures[] = {REACHSCAN_FAILURES(NAME)};
#undef NAME

}  // namespace

int main() {
  std::printf("{\n  \"magic\": [");
  for (std::size_t i = 0; i < std::size(wire::kMagic); ++i)
    std::printf("%s%u", i == 0 ? "" : ", ", wire::kMagic[i]);
  std::printf("],\n");
  print("records", kRecords);
  print("phases", kPhases);
  print("constants", kConstants);
  print("hello", kHello);
  print("frame", kFrame);
  std::printf("  \"steps\": [");
  for (unsigned step = 1; wire::step_name(wire::Step{step}) != std::string("unknown-step"); ++step)
    std::printf("%s\"%s\"", step == 1 ? "" : ", ", wire::step_name(wire::Step{step}));
  std::printf("],\n  \"failures\": [");
  for (const char* name : kFailures)
    std::printf("%s\"%s\"", name == kFailures[0] ? "" : ", ", name);
  std::printf("]\n}\n");
}
