"""Bring the hosts to the state in their specs, then verify. Ansible is entered only if there is something to do."""

from gpuprov.apply.command import run, run_rollback
from gpuprov.apply.document import build_document
from gpuprov.apply.model import ApplyRun, HostOutcome, Options
from gpuprov.apply.on_failure import apply
from gpuprov.apply.text import as_text
from gpuprov.plan.show import Show, Terminal

__all__ = [
    "ApplyRun",
    "HostOutcome",
    "Options",
    "Show",
    "Terminal",
    "apply",
    "as_text",
    "build_document",
    "run",
    "run_rollback",
]
