"""Live processes: what they are, and the helper that looks into them."""
