// The functions that compilers call, for a library without a C library.
#ifndef REACHSCAN_HOSTED
#include "freestanding/runtime.hpp"
#endif
