"""Mutated outputs, inventories, specs and command lines: the only outcomes are a typed answer and the one declared
error.

`python -m tests.fuzz --cases 1000000` runs them, `--case NAME:NUMBER` does one again and shows it.
"""
