"""From numbers to names: modules, symbols, types, and the places of words."""
