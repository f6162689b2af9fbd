#ifndef REACHSCAN_HOSTED
#include "freestanding/runtime.hpp"
#endif
