"""Packages that stand in for those that cannot be had, or that want a GPU."""
