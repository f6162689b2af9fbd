// A case that hangs, for the test that it is ended and reported.
#include <unistd.h>

#include "check.hpp"

CASE(hangs) { pause(); }
