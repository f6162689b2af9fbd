// Where the program ends on the calling thread's stack, and the library begins. Everything below
// belongs to the library, or was left there by calls that have returned: scans do not search it.
#pragma once

namespace reachscan::library {

// Calls work(a, b). The caller's registers are saved above the end of the program. Nested calls
// have no effect. Entry points do nothing else, so that no frame of theirs is above that end.
template <typename Result>  // int or bool
Result enter(Result (*work)(const void* a, void* b), const void* a, void* b);

// The same for code that runs after main() has returned: the program has nothing left on the stack
// then, not even main()'s variables.
void enter_at_exit(int (*work)(const void* a, void* b));

// Where the program ends. Valid within such a call.
const void* end_of_program();

}  // namespace reachscan::library
