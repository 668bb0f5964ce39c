"""Packages that stand in for unavailable ones, or for those that need a GPU."""
