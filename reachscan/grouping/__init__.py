"""Blocks that are alike become one group."""
