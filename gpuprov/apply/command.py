"""`gpuprov apply`: the run, its question and its result on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gpuprov import console
from gpuprov.apply.model import Options
from gpuprov.apply.rollout import apply
from gpuprov.apply.show import Terminal
from gpuprov.apply.text import as_json, as_text
from gpuprov.plan import HostPlan
from gpuprov.plan import as_text as plan_text
from gpuprov.plan.read import Pair


def run(pairs: Sequence[Pair], options: Options) -> int:
    """Apply, print the result, return the exit code. Asks only where a person can answer."""
    asked = sys.stdin.isatty() and sys.stderr.isatty()
    outcome = apply(pairs, options, Terminal(verbose=options.verbose), confirm=confirm if asked else None)
    console.result(as_json(outcome) if options.as_json else as_text(outcome, verbose=options.verbose))
    return outcome.exit_code


def confirm(plans: list[HostPlan]) -> bool:
    """Show what will be done and ask."""
    console.progress(plan_text(plans))
    return console.confirm("apply?")
