"""Benchmarks: ratios against the floor and against the peers, in one run. Not tests: machines are shared and noisy."""
