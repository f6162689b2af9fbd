// Classifies lines of /proc/PID/maps.
#pragma once

#include "helper/target/process.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {

inline bool starts_with(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

// A context of io_setup(). Only part of its memory counts: see completions.hpp.
inline bool is_asynchronous_context(const MapEntry& entry) {
  return starts_with(entry.path, "/[aio]");
}

inline bool is_kernel_owned(const MapEntry& entry) {
  return entry.path == "[vdso]" || entry.path == "[vsyscall]" || starts_with(entry.path, "[vvar") ||
         is_asynchronous_context(entry);
}

// The rings of io_uring are plain memory, and requests in them contain pointers.
inline bool is_ring(const MapEntry& entry) { return entry.path == "anon_inode:[io_uring]"; }

inline bool is_device(const MapEntry& entry) { return entry.backing == Backing::kDevice; }

inline bool is_readable(const MapEntry& entry) {
  return (entry.perms & wire::kRead) != 0 && !is_kernel_owned(entry) && !is_device(entry);
}

// Where 32-bit programs make system calls. The code around shows whether a thread is there on
// behalf of the allocator.
inline bool is_short_kernel_code(const MapEntry& entry) {
  return entry.path == "[vdso]" && entry.end >> 32 == 0;
}

// Returns whether the program may have changed its contents.
inline bool changes(const MapEntry& entry) {
  return (entry.perms & wire::kWrite) != 0 || entry.inode == 0;
}

inline bool is_shared(const MapEntry& entry) { return (entry.perms & wire::kShared) != 0; }

// Returns whether touching an absent page of it has any effect other than reading zeros or a file.
inline bool only_present_pages(const MapEntry& entry) {
  return is_shared(entry) || entry.backing == Backing::kOther || entry.backing == Backing::kSecret;
}

// A mapped file, except anonymous kernel objects that look like one. Programs and libraries may be
// loaded from a memfd, which is mapped privately then.
inline bool is_file(const MapEntry& entry) {
  return entry.inode != 0 && starts_with(entry.path, "/") &&
         !starts_with(entry.path, "/anon_hugepage") &&
         !(starts_with(entry.path, "/memfd:") && is_shared(entry)) &&
         !starts_with(entry.path, "/SYSV") && !starts_with(entry.path, "/dev/zero");
}

// Programs may give such memory a name (PR_SET_VMA_ANON_NAME); Android names each .bss.
inline bool is_anonymous(const MapEntry& entry) {
  return entry.inode == 0 &&
         (entry.path.empty() || entry.path == "[heap]" || starts_with(entry.path, "[anon:"));
}

// MAP_SHARED | MAP_ANONYMOUS.
inline bool is_shared_anonymous(const MapEntry& entry) {
  return is_shared(entry) && starts_with(entry.path, "/dev/zero");
}

// Just-in-time compilers may map such a file twice, and write only where it is not executable.
inline bool is_shared_memfd(const MapEntry& entry) {
  return is_shared(entry) && starts_with(entry.path, "/memfd:");
}

// Returns whether the program may have written to it before it made it unwritable or unreadable, or
// elsewhere.
inline bool may_be_protected(const MapEntry& entry) {
  constexpr std::uint32_t kReadWrite = wire::kRead | wire::kWrite;
  if ((entry.perms & kReadWrite) == kReadWrite || is_kernel_owned(entry) || is_device(entry))
    return false;
  if (is_shared(entry)) return is_shared_anonymous(entry) || is_shared_memfd(entry);
  // Readable anonymous memory is searched anyway.
  return (entry.perms & wire::kRead) == 0 || is_file(entry);
}

}  // namespace reachscan::helper
