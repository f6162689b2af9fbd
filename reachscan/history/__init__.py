"""Compares scans: what counts, what is known, what grew."""
