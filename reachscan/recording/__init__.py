"""The format of scans: turns bytes into facts, and facts into bytes."""
