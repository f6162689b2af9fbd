// A case that hangs, for the test that it is ended and told of.
#include <unistd.h>

#include "check.hpp"

CASE(hangs) { pause(); }
