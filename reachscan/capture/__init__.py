"""Live processes and core files: finds them, and runs the helper on them."""
