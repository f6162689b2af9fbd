// Creates the tables, empty.
#pragma once

#include "recorder/clock.hpp"
#include "recorder/injection.hpp"
#include "recorder/settings.hpp"

namespace reachscan::recorder {

// Returns null if the process gets no such mapping, or it would be too small.
Header* create_tables(const Settings& settings, const Clock& clock);

// Returns everything that was mapped for them.
MappedRange extent_of_tables(const Header& header);

}  // namespace reachscan::recorder
