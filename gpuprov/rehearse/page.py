"""A rehearsal as one HTML page: its acts, what production would see, what it could not prove, and what of it was real."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gpuprov.inventory.names import folded as names
from gpuprov.rehearse.model import ACTS, Rehearsal, Rehearsed, Step, Verdict
from gpuprov.rehearse.reality import Row, table
from gpuprov.rehearse.results import results
from gpuprov.rehearse.text import described, verdict
from gpuprov.report import html
from gpuprov.report.page import About, Headline, State
from gpuprov.report.text import unproven

STATES: dict[Verdict, tuple[State, str]] = {
    "ok": ("right", "\u2713"),
    "waiting": ("boot", "B"),
    "differs": ("fail", "F"),
    "failed": ("fail", "F"),
    "unreachable": ("gone", "U"),
    "not done": ("unproven", "?"),
}
ENDS: dict[int, tuple[State, str]] = {
    1: ("fail", "not as wanted"),
    2: ("error", "cannot be simulated"),
    3: ("fail", "apply failed"),
    4: ("gone", "a simulated host did not come up"),
    130: ("error", "interrupted"),
}
LONGEST = 60
ORIGINS: dict[str, State] = {"real": "right", "simulated": "boot", "stand-in": "error", "none": "unproven"}


class Act(NamedTuple):
    """An act, done or not."""

    name: str
    verdict: Verdict
    state: State
    letter: str
    seconds: float
    told: str
    details: tuple[str, ...]


class Card(NamedTuple):
    """One simulated host, and those it stands for."""

    one: Rehearsal
    hosts: str
    state: State
    verdict: str
    shape: str
    acts: tuple[Act, ...]
    lists: tuple[tuple[str, tuple[str, ...]], ...]
    waived: tuple[tuple[str, str], ...]


def page(whole: Rehearsed, about: About | None = None, *, verbose: bool = False) -> str:
    """The page. The same rehearsal gives the same text."""
    named = {one.name: _named(one) for one in whole.rehearsals}
    return html.render(
        [msgspec.structs.replace(row, host=named[row.host]) for row in results(whole)],
        "gpuprov rehearse",
        verbose=verbose,
        about=about,
        template="rehearse.html.j2",
        told=headline(whole),
        limit=lambda shown: html.limit(
            [name for one in whole.rehearsals if named[one.name] in shown for name in one.hosts]
        ),
        cards=[_card(one) for one in sorted(whole.rehearsals, key=lambda one: one.exit_code == 0)],
        reality=_reality(whole),
        origins=ORIGINS,
        whole=whole,
    )


def _named(one: Rehearsal) -> str:
    """What a simulated host is called where hosts are shown: those that it stands for."""
    told = names(one.hosts)
    return told if len(told) <= LONGEST else f"{one.hosts[0]} and {len(one.hosts) - 1:,} like it"


def headline(whole: Rehearsed) -> Headline:
    """Whether it is green, as a sentence, and what was rehearsed for what."""
    real, simulated = sum(len(one.hosts) for one in whole.rehearsals), len(whole.rehearsals)
    more = f"{simulated} simulated host{'s' * (simulated != 1)} for {real} real host{'s' * (real != 1)}; {whole.seconds:.0f} s. "
    more += "No real host was contacted."
    waived = sum(len(one.judged.waived) for one in whole.rehearsals if one.judged)
    if not whole.rehearsals:
        return Headline(state="unproven", sentence="Nothing was rehearsed", more=more)
    if whole.exit_code == 0:
        gap = f", but {unproven(waived)} on simulated hosts" if waived else ""
        return Headline(state="part" if waived else "right", sentence=f"The rehearsal is green{gap}", more=more)
    state, told = ENDS[whole.exit_code]
    bad = [one for one in whole.rehearsals if one.exit_code]
    part = f" for {names(name for one in bad for name in one.hosts)}" if len(bad) < simulated <= 8 else ""
    return Headline(state=state, sentence=f"The rehearsal is not green{part}: {told}", more=more)


def _card(one: Rehearsal) -> Card:
    states: dict[int, State] = {0: "right", **{code: state for code, (state, _) in ENDS.items()}}
    waived = one.judged.waived if one.judged else ()
    unproved = one.judged.unproved if one.judged else ()
    return Card(
        one=one,
        hosts=names(one.hosts),
        state="part" if one.exit_code == 0 and waived else states[one.exit_code],
        verdict=verdict(one) + (f", but {unproven(len(waived))} here" if one.exit_code == 0 and waived else ""),
        shape=described(one.description),
        acts=tuple(_act(one, name) for name in ACTS) if not one.problem else (),
        lists=_lists(one),
        waived=(
            *((row.check, row.reason) for row in waived),
            *((row.check, f"{row.found} (no waiver: this counts as an error)") for row in unproved),
        ),
    )


def _act(one: Rehearsal, name: str) -> Act:
    step = one.step(name) or Step(name=name, verdict="not done")
    state, letter = STATES[step.verdict]
    return Act(name, step.verdict, state, letter, step.seconds, step.told, step.details)


def _lists(one: Rehearsal) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What production would see; empty where that is not known."""
    if one.seen is None:
        return ()
    parts = {"package": one.seen.packages, "file": one.seen.files, "service": one.seen.services}
    return tuple((f"{len(found)} {name}{'s' * (len(found) != 1)}", found) for name, found in parts.items())


def _reality(whole: Rehearsed) -> list[Row]:
    return table(one.description for one in whole.rehearsals if one.description is not None)
