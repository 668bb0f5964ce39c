"""`gpuprov apply`: the run, its question and its result on the terminal."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from gpuprov.apply.document import build_document
from gpuprov.apply.execution import Agreed
from gpuprov.apply.model import Act, ApplyRun, HostOutcome, Options
from gpuprov.apply.on_failure import apply
from gpuprov.apply.rollback import acknowledge, rollback
from gpuprov.apply.text import as_text
from gpuprov.core import terminal
from gpuprov.plan import HostPlan
from gpuprov.plan import as_text as plan_text
from gpuprov.plan.read import Pair
from gpuprov.plan.show import Terminal
from gpuprov.report import retry
from gpuprov.report.files import check_writable
from gpuprov.report.page import About
from gpuprov.report.results import Files, deliver
from gpuprov.spec.model import RawHost


def run(
    pairs: Sequence[Pair],
    options: Options,
    agreed: Agreed | None = None,
    *,
    html: Path | None = None,
    about: About | None = None,
    left_out: Mapping[str, HostOutcome] | None = None,
) -> int:
    """Apply, print the result, return the exit code. Asks only if a person can answer. agreed: refuses changes that
    were not approved. html: the page, with `about`. left_out: hosts that take no part, and why; they are reported
    beside the others."""
    check_writable(html)
    interactive = terminal.can_ask()
    outcome = apply(
        pairs,
        options,
        Terminal(verbose=options.verbose),
        confirm=partial(confirm, act=options.act) if interactive else None,
        agreed=agreed,
    )
    outcome.hosts += (left_out or {}).values()

    def as_page() -> str:
        from gpuprov.apply.page import render
        from gpuprov.report.known import known

        return render(outcome, about, {raw.name: known(raw) for raw, _ in pairs}, verbose=options.verbose)

    _deliver(outcome, options, ((html, as_page),))
    retry.offer("apply", outcome.again, len(outcome.hosts))
    if outcome.locked != outcome.again:
        retry.offer("apply-locked", outcome.locked, len(outcome.hosts), to_do="that another run works on, to do later")
    return outcome.exit_code


def _deliver(outcome: ApplyRun, options: Options, files: Files = ()) -> None:
    def text() -> str:
        width, colour = terminal.room(sys.stdout), terminal.coloured(sys.stdout)
        return as_text(outcome, verbose=options.verbose, width=width, colour=colour)

    deliver(build_document(outcome), None if options.as_json else text, files)


def run_rollback(hosts: Sequence[RawHost], options: Options, to: str = "") -> int:
    """Roll back, print the result, return the exit code."""
    interactive = terminal.can_ask()
    ask = partial(confirm, act=options.act) if interactive else None
    outcome = rollback(hosts, options, Terminal(verbose=options.verbose), to=to, confirm=ask)
    _deliver(outcome, options)
    acknowledge(hosts, outcome, options.forks)
    retry.offer("rollback", outcome.again, len(hosts))
    return outcome.exit_code


def confirm(plans: list[HostPlan], act: Act = "apply") -> bool:
    """Show the plans and ask for confirmation."""
    colour = terminal.coloured(sys.stderr)
    terminal.progress(plan_text(plans, colour=colour, width=terminal.room(sys.stderr), ahead=True), in_colour=colour)
    return terminal.confirm(f"{act}?")
