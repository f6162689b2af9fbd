// Starts the recorder in a running process: all of its threads are stopped, and a process that
// shares their memory executes this. Finds what to hook; the helper hooks it.
#include "arch/instructions.hpp"
#include "recorder/imports.hpp"
#include "recorder/injection.hpp"
#include "recorder/process.hpp"
#include "recorder/recorder.hpp"

extern "C" {
void* malloc(std::size_t);
void* calloc(std::size_t, std::size_t);
void* realloc(void*, std::size_t);
void* reallocarray(void*, std::size_t, std::size_t);
void free(void*);
void cfree(void*);
void free_sized(void*, std::size_t);
void free_aligned_sized(void*, std::size_t, std::size_t);
void* aligned_alloc(std::size_t, std::size_t);
void* memalign(std::size_t, std::size_t);
int posix_memalign(void**, std::size_t, std::size_t);
void* valloc(std::size_t);
void* pvalloc(std::size_t);
int fork();
int _Fork();
int dlclose(void*);
int prctl(int, ...);
int pthread_setname_np(void*, const char*);
long syscall(long, long, long, long, long, long, reachscan::arch::SixthArgument);
}

namespace reachscan::recorder {

extern "C" [[noreturn]] void reachscan_add_filled_in(Injection* injection);

constinit ThreadStates thread_states;

namespace {

template <typename Signature>
void* address_of(Signature* function) {
  return reinterpret_cast<void*>(function);
}

// Nothing runs constructors here, and these addresses are not constants.
struct Functions {
  static std::uint32_t find(const char* name) {
    std::uint32_t i = 0;
    while (i < kHookedCount && !same_text(kHookedFunctions[i].name, name)) ++i;
    return i;
  }

  // In the order of kHookedFunctions.
  void* const hooks[kHookedCount] = {
      address_of(free),
      address_of(realloc),
      address_of(reallocarray),
      address_of(cfree),
      address_of(free_sized),
      address_of(free_aligned_sized),
      address_of(fork),
      address_of(_Fork),
      address_of(dlclose),
      address_of(prctl),
      address_of(pthread_setname_np),
      address_of(syscall),
      address_of(malloc),
      address_of(calloc),
      address_of(aligned_alloc),
      address_of(memalign),
      address_of(posix_memalign),
      address_of(valloc),
      address_of(pvalloc),
  };
};

constinit LinkMap link_map;
constinit Settings settings;
constinit std::uint64_t thread_number_offset = 0;
constinit const Injection* injected = nullptr;

bool holds(const Image& image, std::uint64_t address) {
  bool found = false;
  image.each(PT_LOAD, [&](const Elf64_Phdr& header) {
    if (address - (image.bias + header.p_vaddr) < header.p_memsz) found = true;
  });
  return found;
}

// Finds the slots of one image after the other.
class Plan {
 public:
  explicit Plan(Injection& injection) : injection_(injection) {}

  void find_functions() {
    bool has_samples = settings.options.sample != 0;
    for (std::size_t i = 0; i < kHookedCount; ++i) {
      const HookedFunction& function = kHookedFunctions[i];
      void* hook = functions_.hooks[i];
      if (hook == address_of(malloc) && !has_samples) hook = address_of(unsampled_malloc);
      bool is_at_entry = injection_.hooks[i].next != 0;
      injection_.hooks[i] = {reinterpret_cast<std::uint64_t>(hook), next_function(function.name),
                             function.frees, is_at_entry};
    }
    injection_.hook_count = kHookedCount;
  }

  void add(const Image& image) {
    add_symbols(image);
    std::uint32_t before = injection_.slot_count;
    Imports(image).each([&](SlotUse use, std::uint64_t address, const char* name) {
      std::uint32_t hook = Functions::find(name);
      if (is_by_words(hook) && holds(image, address)) add(image, use, address, hook);
    });
    if (injection_.slot_count > before) ++injection_.module_count;
  }

  // Adds words that the loader has filled in since then and that lead to a stub.
  void add_filled_in(const Image& image) {
    Imports(image).each([&](SlotUse, std::uint64_t address, const char* name) {
      std::uint32_t hook = Functions::find(name);
      if (!is_by_words(hook) || !holds(image, address)) return;
      std::uint64_t stub = stub_of(injection_, hook, SlotUse::kPointer);
      if (*reinterpret_cast<const std::uint64_t*>(address) == stub)
        add({address, injection_.hooks[hook].next, hook, SlotUse::kPointer});
    });
  }

 private:
  bool is_by_words(std::uint32_t hook) const {
    return hook < kHookedCount && injection_.hooks[hook].is_at_entry == 0;
  }

  void add(const Slot& slot) {
    if (injection_.slot_count < kMaxSlots) injection_.slots[injection_.slot_count++] = slot;
  }

  // A function with several versions has several symbols.
  void add_symbols(const Image& image) {
    Symbols symbols(image);
    for (std::uint32_t hook = 0; hook < kHookedCount; ++hook) {
      if (!is_by_words(hook)) continue;
      symbols.each(kHookedFunctions[hook].name, [&](const Elf64_Sym& symbol, bool) {
        std::uint64_t next = injection_.hooks[hook].next;
        auto address = reinterpret_cast<std::uint64_t>(&symbol.st_value);
        if (next != 0 && image.bias + symbol.st_value == next &&
            address % sizeof symbol.st_value == 0)
          add({address, symbol.st_value, hook, SlotUse::kSymbol});
      });
    }
  }

  // A word that will be filled in at the first call (lazy binding) points into its own image. So
  // does one that was bound to the image's own function, which may be a different one.
  void add(const Image& image, SlotUse use, std::uint64_t address, std::uint32_t hook) {
    std::uint64_t original = *reinterpret_cast<const std::uint64_t*>(address);
    std::uint64_t next = injection_.hooks[hook].next;
    std::uint64_t own = Symbols(image).find(kHookedFunctions[hook].name);
    bool is_unbound = use == SlotUse::kCall && holds(image, original) && (own == 0 || own == next);
    if (next == 0 || (original != next && !is_unbound) || injection_.slot_count == kMaxSlots) {
      injection_.other_words += next != 0 && original != 0 ? 1 : 0;
      return;
    }
    add({address, original, hook, use});
  }

  Injection& injection_;
  Functions functions_;
};

void answer(Injection& injection, std::uint64_t start, std::uint64_t bytes) {
  injection.extents[injection.extent_count++] = {start, bytes};
}

LinkMap find_images(const Injection& injection) {
  Image program = program_image(injection.program_headers, injection.program_header_count);
  if (injection.is_static == 0) return LinkMap::told_to(program);
  program.bias = injection.program_bias;
  program.frames = {injection.unwind_tables.start, injection.unwind_tables.bytes};
  return LinkMap::of_static(program);
}

StartOutcome begin(Injection& injection) {
  if (!read_settings(injection.settings, settings)) return StartOutcome::kBadSettings;
  settings.options.way_in = WayIn::kAttach;
  injected = &injection;
  link_map = find_images(injection);
  if (!link_map.is_known()) return StartOutcome::kNoLoader;
  Plan plan(injection);
  plan.find_functions();
  if (injection.is_static == 0) link_map.each([&](const Image& image) { plan.add(image); });
  if (injection.slot_count == 0) return StartOutcome::kNothingToHook;
  injection.initial_slots = injection.slot_count;
  injection.add_filled_in = reinterpret_cast<std::uint64_t>(address_of(reachscan_add_filled_in));
  void* states = map_memory(ThreadStates::kBytes);
  if (states == nullptr) return StartOutcome::kNoMemory;
  answer(injection, reinterpret_cast<std::uint64_t>(states), ThreadStates::kBytes);
  thread_states.place(states, injection.threads);
  thread_number_offset = injection.thread_number_offset;
  look_up_allocator();
  look_up_process_functions();
  if (!recorder.start(settings, link_map, injection.main_stack_top, injection.kernel_library))
    return StartOutcome::kNoMemory;
  recorder.belong_to(static_cast<std::uint32_t>(injection.pid));
  recorder.each_mapping(
      [&](std::uint64_t start, std::uint64_t bytes) { answer(injection, start, bytes); });
  confine(injection.is_confined != 0);
  return StartOutcome::kRecording;
}

}  // namespace

std::uint32_t own_thread_id() {
  if (thread_number_offset == 0) return thread_id();
  return static_cast<std::uint32_t>(arch::word_at(arch::thread_pointer() + thread_number_offset));
}

// Everything was prepared before the first hook.
void prepare_process(char**) {}

// No process waits for the end of this one.
void permit_waiting_tracer() {}

std::uint64_t next_function(const char* name) {
  std::uint32_t hook = Functions::find(name);
  std::uint64_t found = hook < kHookedCount ? injected->hooks[hook].next : 0;
  if (found != 0 || injected->is_static != 0) return found;
  link_map.until([&](const Image& image) {
    found = Symbols(image).find(name);
    return found != 0;
  });
  return found;
}

}  // namespace reachscan::recorder

// Where a middleman starts, in the stopped process.
extern "C" {

// The entry point of this image.
[[noreturn]] __attribute__((visibility("default"))) void reachscan_begin(
    reachscan::recorder::Injection* injection) {
  injection->begun = reachscan::recorder::begin(*injection);
  for (;;) reachscan::arch::trap();
}

[[noreturn]] void reachscan::recorder::reachscan_add_filled_in(Injection* injection) {
  injection->slot_count = injection->initial_slots;
  injection->is_settled = link_map.is_settled() ? 1 : 0;
  Plan plan(*injection);
  if (injection->is_settled != 0 && injection->is_static == 0)
    link_map.each([&](const Image& image) { plan.add_filled_in(image); });
  for (;;) arch::trap();
}

}  // extern "C"
