// Prints the contents of wire/*.hpp and libc/*.hpp as JSON;
// tests/unit/recording/test_wire_layout.py compares them with Python's side. A member missing from
// a list is an error: the test compiles with -Werror=switch.
#include <cstddef>
#include <cstdio>
#include <iterator>

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
void print(const char* name, const Items& items) {
  std::printf("  \"%s\": {", name);
  const char* separator = "";
  for (const Item& item : items) {
    std::printf("%s\"%s\": %lu", separator, item.name, item.value);
    separator = ", ";
  }
  std::printf("},\n");
}

#define NAME(member)    \
  case wire::k##member: \
    return #member

const char* name_of(wire::Doubt doubt) {
  switch (doubt) {
    NAME(OnePastTheEnd);
    NAME(Tagged);
    NAME(UnreadableMemory);
    NAME(SignalStack);
    NAME(Mangled);
    NAME(HeldByKernel);
    NAME(Relative);
    NAME(Unaligned);
    NAME(Number);
    NAME(StaleWord);
    NAME(AllocatorBusy);
    NAME(LostBefore);
    NAME(MayBeFree);
  }
  return nullptr;
}

const char* name_of(wire::Shape shape) {
  switch (shape) {
    NAME(UnknownShape);
    NAME(TreeNode);
    NAME(ListNode);
    NAME(ChainNode);
    NAME(PointerArray);
    NAME(VectorBody);
    NAME(Text);
    NAME(Zeros);
    NAME(String);
  }
  return nullptr;
}

const char* name_of(wire::BlockState state) {
  switch (state) {
    NAME(NoHeap);
    NAME(Reachable);
    NAME(Leaked);
    NAME(NotLive);
  }
  return nullptr;
}

const char* name_of(wire::Holder holder) {
  switch (holder) {
    NAME(RootMemory);
    NAME(RootWord);
    NAME(ReachableBlock);
    NAME(LeakedBlock);
  }
  return nullptr;
}

const char* name_of(wire::Permission permission) {
  switch (permission) {
    NAME(Read);
    NAME(Write);
    NAME(Execute);
    NAME(Shared);
    NAME(Apart);
  }
  return nullptr;
}

const char* name_of(wire::RegionKind kind) {
  switch (kind) {
    NAME(ProgramBreak);
    NAME(ThreadHeap);
    NAME(Mapped);
    NAME(Pools);
    NAME(ProgramPool);
  }
  return nullptr;
}

const char* name_of(wire::Phase phase) {
  switch (phase) {
    NAME(Freeze);
    NAME(Quiesce);
    NAME(Clone);
    NAME(Enumerate);
    NAME(Mark);
    NAME(Collect);
  }
  return nullptr;
}

#undef NAME

// Tries every value of a byte.
template <typename Enum>
void print_enum(const char* name) {
  std::printf("  \"%s\": {", name);
  const char* separator = "";
  for (unsigned value = 0; value < 256; ++value) {
    const char* member = name_of(static_cast<Enum>(value));
    if (member == nullptr) continue;
    std::printf("%s\"%s\": %u", separator, member, value);
    separator = ", ";
  }
  std::printf("},\n");
}

template <typename Names>
void print_names(const char* name, const Names& names, const char* end) {
  std::printf("  \"%s\": [", name);
  const char* separator = "";
  for (const char* one : names) {
    std::printf("%s\"%s\"", separator, one);
    separator = ", ";
  }
  std::printf("]%s\n", end);
}

void print_records() {
  std::printf("  \"records\": [");
  const char* separator = "";
  for (const wire::Record& record : wire::kRecords) {
    std::printf("%s\n    [%u, \"%s\", \"%.*s\"]", separator, record.type, record.name,
                static_cast<int>(record.fields.size()), record.fields.data());
    separator = ",";
  }
  std::printf("],\n");
}

constexpr Item kConstants[] = {{"VERSION", wire::kVersion},
                               {"LITTLE_ENDIAN", wire::kLittleEndian},
                               {"WORD_SIZE", sizeof(void*)},
                               {"MAX_PAYLOAD", wire::kMaxPayload},
                               {"DIRECT", wire::kDirect}};
constexpr Item kHello[] = {{"size", sizeof(wire::Hello)},
                           {"magic", offsetof(wire::Hello, magic)},
                           {"version", offsetof(wire::Hello, version)},
                           {"byte_order", offsetof(wire::Hello, byte_order)},
                           {"word_size", offsetof(wire::Hello, word_size)},
                           {"machine", offsetof(wire::Hello, machine)},
                           {"page_kib", offsetof(wire::Hello, page_kib)}};
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
  print_records();
  print_enum<wire::Doubt>("Doubt");
  print_enum<wire::Shape>("Shape");
  print_enum<wire::BlockState>("BlockState");
  print_enum<wire::Holder>("Holder");
  print_enum<wire::Permission>("Permission");
  print_enum<wire::RegionKind>("RegionKind");
  print_enum<wire::Phase>("Phase");
  print("constants", kConstants);
  print("hello", kHello);
  print("frame", kFrame);
  print_names("failures", kFailures, ",");
  print_names("steps", wire::kStepNames, "");
  std::printf("}\n");
}
