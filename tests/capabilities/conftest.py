"""Every check that passes in a test here is asked again with its probes silent (`silent.py`); what one that does not
pass says is commands that the host's distribution has (`commands.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuprov.capabilities import HOUSE
from gpuprov.capabilities.base import Check, Context, Outcome
from gpuprov.explain import all_checks
from tests.capabilities.commands import judged
from tests.capabilities.silent import asked_again

HERE: list[pytest.Item] = []
"""The test of this folder that runs now: others have checks judged by the thousand, on the same hosts."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    HERE.append(item)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    HERE.clear()


def heard(check: Check) -> None:
    """The check with the second question behind it; each spec is asked once."""
    bare = replace(check)
    known: set[str] = set()

    def run(ctx: Context[Any]) -> Outcome:
        outcome = bare.run(ctx)
        if HERE:
            judged(bare, ctx, outcome)
        if HERE and outcome.status == "pass" and (seen := repr((ctx.host, ctx.fragment))) not in known:
            known.add(seen)
            asked_again(bare, ctx)
        return outcome

    object.__setattr__(check, "run", run)


for one in dict.fromkeys((*all_checks(), *HOUSE.checks)):
    heard(one)
