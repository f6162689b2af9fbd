"""Grouping: blocks that are alike become one group."""
