// Where the program ends on the calling thread's stack, and the library begins. What lies below is
// the library's, or was left there by calls that have returned: scans do not look into it.
#pragma once

namespace reachscan::library {

// Calls work(a, b). The registers of the caller are kept above the end of the program. A call from
// within another one is of no account. Entry points do nothing but this, so that no frame of theirs
// lies above that end.
template <typename Result>  // int or bool
Result enter(Result (*work)(const void* a, void* b), const void* a, void* b);

// The same for what runs after main() has returned: there, the program has nothing on the stack any
// more, not even what main() had.
void enter_at_exit(int (*work)(const void* a, void* b));

// Where the program ends. Within such a call.
const void* end_of_program();

}  // namespace reachscan::library
