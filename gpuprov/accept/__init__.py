"""Acceptance: does the fleet perform. Run on request, under each host's lock, and nothing is left behind."""

from gpuprov.accept.command import run
from gpuprov.accept.model import KINDS, Options

__all__ = ["KINDS", "Options", "run"]
