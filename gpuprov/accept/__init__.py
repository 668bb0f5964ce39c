"""Acceptance tests: does the fleet perform as its specs say? They run on request, under each host's lock, and leave
nothing behind."""

from gpuprov.accept.command import run
from gpuprov.accept.model import KINDS, Options

__all__ = ["KINDS", "Options", "run"]
