"""Specs and facts -> results."""

from gpuprov.verify.evaluate import MOMENTS, Registry, Result, evaluate, probes_of
from gpuprov.verify.verify import NextBoot, exit_code, next_boot, unreachable, verify

__all__ = [
    "MOMENTS",
    "NextBoot",
    "Registry",
    "Result",
    "evaluate",
    "exit_code",
    "next_boot",
    "probes_of",
    "unreachable",
    "verify",
]
