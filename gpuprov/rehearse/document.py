"""A rehearsal as one JSON document, printed by `gpuprov rehearse --json`.

docs/reference/rehearse.schema.json is made from these types.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpuprov import __version__
from gpuprov.capabilities.base import Moment
from gpuprov.errors import Code
from gpuprov.reading import format_document
from gpuprov.rehearse.model import Rehearsal, Rehearsed, Seen, Step
from gpuprov.rehearse.reality import How, build_table
from gpuprov.rehearse.text import format_summary, format_verdict
from gpuprov.simulate.description import Description
from gpuprov.simulate.waivers import Judged
from gpuprov.verify.evaluate import ResultStatus

FORMAT = 1
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Told(msgspec.Struct, kw_only=True):
    """Result of one check of the simulated host, at the end."""

    check: str
    status: ResultStatus
    found: str
    moment: Moment


class Thing(msgspec.Struct, kw_only=True):
    """One thing that production has, and what represented it."""

    thing: str
    how: How
    told: str


class RehearsedHost(msgspec.Struct, kw_only=True):
    """One simulated host. `hosts`: the real ones it stands for. `verdict`: in words. `problem`: why there was no rehearsal, with its
    `hint`. `steps`: the acts, with seconds. `seen`: what production would see of the apply; null where it did not succeed. `judged`:
    what was proved, waived with a reason, and not proved. `login`: with --keep, how to log in."""

    name: str
    hosts: tuple[str, ...]
    verdict: str
    exit_code: Code
    description: Description | None
    notes: tuple[str, ...]
    problem: str
    hint: str
    steps: tuple[Step, ...]
    seen: Seen | None
    judged: Judged | None
    results: tuple[Told, ...]
    login: str


class Summary(msgspec.Struct, kw_only=True):
    """The rehearsal in a sentence; hosts, and simulated hosts by verdict."""

    sentence: str
    simulated: int
    hosts: int
    verdicts: dict[str, int]


class Document(msgspec.Struct, kw_only=True):
    """The document. `logs`: files with Ansible's output. `leftovers`: simulated hosts that could not be removed. `reality`: what of
    it was real, simulated, a stand-in, or not there."""

    gpuprov_rehearsal: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov: str = __version__
    run: str
    exit_code: Code
    seconds: Seconds
    summary: Summary
    interrupted: bool
    kept: bool
    leftovers: tuple[str, ...]
    logs: tuple[str, ...]
    rehearsals: tuple[RehearsedHost, ...]
    reality: tuple[Thing, ...]


def build_document(whole: Rehearsed) -> Document:
    """Build the document."""
    verdicts = [format_verdict(rehearsal) for rehearsal in whole.rehearsals]
    return Document(
        run=whole.run,
        exit_code=whole.exit_code,
        seconds=round(whole.seconds, 3),
        summary=Summary(
            sentence=format_summary(whole),
            simulated=len(verdicts),
            hosts=sum(len(rehearsal.hosts) for rehearsal in whole.rehearsals),
            verdicts={word: verdicts.count(word) for word in dict.fromkeys(verdicts)},
        ),
        interrupted=whole.interrupted,
        kept=whole.kept,
        leftovers=whole.leftovers,
        logs=tuple(whole.logs),
        rehearsals=tuple(build_host(rehearsal) for rehearsal in whole.rehearsals),
        reality=tuple(Thing(**row._asdict()) for row in build_table(whole.descriptions)),
    )


def format_json(whole: Rehearsed) -> str:
    """Format the document as text."""
    return format_document(build_document(whole))


def build_host(rehearsal: Rehearsal) -> RehearsedHost:
    return RehearsedHost(
        name=rehearsal.name,
        hosts=rehearsal.hosts,
        verdict=format_verdict(rehearsal),
        exit_code=rehearsal.exit_code,
        description=rehearsal.description,
        notes=rehearsal.notes,
        problem=rehearsal.problem,
        hint=rehearsal.hint,
        steps=tuple(rehearsal.steps),
        seen=rehearsal.seen,
        judged=rehearsal.judged,
        results=tuple(Told(check=r.check, status=r.status, found=r.found, moment=r.moment) for r in rehearsal.results),
        login=rehearsal.login,
    )
