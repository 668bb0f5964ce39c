"""A rehearsal as one HTML page: its acts, what production would see, what it could not prove, and which parts were
real."""

from typing import NamedTuple

import msgspec

from gpuprov.inventory.names import fold_names as names
from gpuprov.rehearse.model import ACTS, Rehearsal, Rehearsed, Step, Verdict
from gpuprov.rehearse.reality import Row, build_table
from gpuprov.rehearse.results import list_results
from gpuprov.rehearse.text import format_gap, format_host, format_verdict
from gpuprov.report import html
from gpuprov.report.page import About, Headline, State

STATES: dict[Verdict, tuple[State, str]] = {
    "ok": ("right", "\u2713"),
    "waiting": ("boot", "B"),
    "differs": ("fail", "F"),
    "failed": ("fail", "F"),
    "unreachable": ("gone", "U"),
    "not done": ("unproven", "?"),
}
ENDS: dict[int, tuple[State, str]] = {
    1: ("fail", "differs from the spec"),
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
    detail: str
    details: tuple[str, ...]


class Card(NamedTuple):
    """One simulated host, and those it stands for."""

    rehearsal: Rehearsal
    hosts: str
    state: State
    verdict: str
    shape: str
    acts: tuple[Act, ...]
    lists: tuple[tuple[str, tuple[str, ...]], ...]
    waived: tuple[tuple[str, str], ...]


def render_page(whole: Rehearsed, about: About | None = None, *, verbose: bool = False) -> str:
    """Render the page. The same rehearsal gives the same text."""
    named = {rehearsal.name: name_host(rehearsal) for rehearsal in whole.rehearsals}
    return html.render(
        [msgspec.structs.replace(row, host=named[row.host]) for row in list_results(whole)],
        "gpuprov rehearse",
        verbose=verbose,
        about=about,
        template="rehearse.html.j2",
        page_headline=build_headline(whole),
        limit=lambda shown: html.limit(
            [name for rehearsal in whole.rehearsals if named[rehearsal.name] in shown for name in rehearsal.hosts]
        ),
        cards=[
            build_card(rehearsal)
            for rehearsal in sorted(whole.rehearsals, key=lambda rehearsal: rehearsal.exit_code == 0)
        ],
        reality=build_reality(whole),
        origins=ORIGINS,
        whole=whole,
    )


def name_host(rehearsal: Rehearsal) -> str:
    """Name a simulated host by the real ones it stands for."""
    label = names(rehearsal.hosts)
    return label if len(label) <= LONGEST else f"{rehearsal.hosts[0]} and {len(rehearsal.hosts) - 1:,} like it"


def build_headline(whole: Rehearsed) -> Headline:
    """Summarize in a sentence whether it is green, and what was rehearsed for which hosts."""
    real, simulated = sum(len(rehearsal.hosts) for rehearsal in whole.rehearsals), len(whole.rehearsals)
    more = (
        f"{simulated} simulated host{'s' * (simulated != 1)} for {real} real host{'s' * (real != 1)}; "
        f"{whole.seconds:.0f} s. "
    )
    more += "No real host was contacted."
    if not whole.rehearsals:
        return Headline(state="unproven", sentence="Nothing was rehearsed", more=more)
    if whole.exit_code == 0:
        gap = format_gap(whole.rehearsals, "on simulated hosts")
        return Headline(state="part" if gap else "right", sentence=f"The rehearsal is green{gap}", more=more)
    state, sentence = ENDS[whole.exit_code]
    bad = [rehearsal for rehearsal in whole.rehearsals if rehearsal.exit_code]
    part = f" for {names(name for rehearsal in bad for name in rehearsal.hosts)}" if len(bad) < simulated <= 8 else ""
    return Headline(state=state, sentence=f"The rehearsal is not green{part}: {sentence}", more=more)


def build_card(rehearsal: Rehearsal) -> Card:
    states: dict[int, State] = {0: "right", **{code: state for code, (state, _) in ENDS.items()}}
    waived = rehearsal.judged.waived if rehearsal.judged else ()
    gap = format_gap([rehearsal], "here")
    unproved = rehearsal.judged.unproved if rehearsal.judged else ()
    return Card(
        rehearsal=rehearsal,
        hosts=names(rehearsal.hosts),
        state="part" if gap else states[rehearsal.exit_code],
        verdict=f"{format_verdict(rehearsal)}{gap}",
        shape=format_host(rehearsal.description),
        acts=tuple(build_act(rehearsal, name) for name in ACTS) if not rehearsal.problem else (),
        lists=build_lists(rehearsal),
        waived=(
            *((row.check, row.reason) for row in waived),
            *((row.check, f"{row.found} (no waiver: this counts as an error)") for row in unproved),
        ),
    )


def build_act(rehearsal: Rehearsal, name: str) -> Act:
    step = rehearsal.step(name) or Step(name=name, verdict="not done")
    state, letter = STATES[step.verdict]
    return Act(name, step.verdict, state, letter, step.seconds, step.told, step.details)


def build_lists(rehearsal: Rehearsal) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """List the changes that production would see; empty if they are not known."""
    if rehearsal.seen is None:
        return ()
    parts = {"package": rehearsal.seen.packages, "file": rehearsal.seen.files, "service": rehearsal.seen.services}
    return tuple((f"{len(entries)} {name}{'s' * (len(entries) != 1)}", entries) for name, entries in parts.items())


def build_reality(whole: Rehearsed) -> list[Row]:
    return build_table(rehearsal.description for rehearsal in whole.rehearsals if rehearsal.description is not None)
