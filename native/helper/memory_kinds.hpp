// What a line of /proc/PID/maps stands for.
#pragma once

#include "helper/process.hpp"
#include "wire/protocol.hpp"

namespace reachscan::helper {

inline bool starts_with(const std::string& text, const char* prefix) {
  return text.rfind(prefix, 0) == 0;
}

inline bool is_kernel_owned(const MapEntry& entry) {
  return entry.path == "[vdso]" || entry.path == "[vsyscall]" || starts_with(entry.path, "[vvar");
}

// The rings of io_uring are plain memory, and requests in them carry pointers.
inline bool is_ring(const MapEntry& entry) { return entry.path == "anon_inode:[io_uring]"; }

// Of io_setup().
inline bool is_asynchronous_context(const MapEntry& entry) {
  return starts_with(entry.path, "/[aio]");
}

// Memory of a device may have no pages behind it, or react to being read.
inline bool is_device(const MapEntry& entry) {
  if (starts_with(entry.path, "anon_inode:")) return !is_ring(entry);
  return starts_with(entry.path, "/dev/") && !starts_with(entry.path, "/dev/shm/") &&
         entry.path != "/dev/zero" && entry.path != "/dev/zero (deleted)";
}

// A mapped file that is not an anonymous object of the kernel dressed as one.
inline bool is_file(const MapEntry& entry) {
  return entry.inode != 0 && starts_with(entry.path, "/") &&
         !starts_with(entry.path, "/anon_hugepage") && !starts_with(entry.path, "/memfd:") &&
         !starts_with(entry.path, "/SYSV") && !starts_with(entry.path, "/dev/zero");
}

inline bool is_anonymous(const MapEntry& entry) {
  return entry.inode == 0 && (entry.path.empty() || entry.path == "[heap]");
}

// MAP_SHARED | MAP_ANONYMOUS.
inline bool is_shared_anonymous(const MapEntry& entry) {
  return (entry.perms & wire::kShared) != 0 && starts_with(entry.path, "/dev/zero");
}

}  // namespace reachscan::helper
