"""The document of `gpuprov rehearse`."""

from collections import Counter

import msgspec

from gpuprov.capabilities.base import Moment
from gpuprov.core.errors import Code
from gpuprov.core.fill import fill
from gpuprov.rehearse.model import Rehearsal, Rehearsed, Seen, Step
from gpuprov.rehearse.reality import How, build_table
from gpuprov.rehearse.text import format_summary, format_verdict
from gpuprov.report.document import Document, HostDocument, Summary, conclude, sum_up
from gpuprov.simulate.description import Description
from gpuprov.simulate.waivers import Judged
from gpuprov.verify.evaluate import ResultStatus


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


class SimulatedHost(msgspec.Struct, kw_only=True):
    """One simulated host. `hosts`: the real ones it stands for. `verdict`: in words. `left_out`: what of their spec was
    not rehearsed, with reasons. `problem`: why there was no
    rehearsal, with its `fix`. `steps`: the acts, with seconds. `seen`: what production would see of the apply; null
    where it did not succeed. `judged`: what was proved, waived with a reason, and not proved. `login`: with --keep, how
    to log in."""

    name: str
    hosts: tuple[str, ...]
    verdict: str
    exit_code: Code
    description: Description | None
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    problem: str
    fix: str
    steps: tuple[Step, ...]
    seen: Seen | None
    judged: Judged | None
    results: tuple[Told, ...]
    login: str


class RehearsedSummary(Summary, kw_only=True):
    """The rehearsal in a sentence; hosts, and simulated hosts by verdict."""

    simulated: int
    verdicts: dict[str, int]


class RehearsedHost(HostDocument, frozen=True, kw_only=True):
    """A host of the inventory. `simulated`: the simulated host that stands for it."""

    simulated: str


class RehearsedDocument(Document, kw_only=True, tag="rehearse"):
    """The document. `logs`: files with Ansible's output. `leftovers`: simulated hosts that could not be removed.
    `reality`: what of it was real, simulated, a stand-in, or not there."""

    run: str
    summary: RehearsedSummary
    interrupted: bool
    kept: bool
    leftovers: tuple[str, ...]
    logs: tuple[str, ...]
    hosts: tuple[RehearsedHost, ...]
    rehearsals: tuple[SimulatedHost, ...]
    reality: tuple[Thing, ...]


def build_document(whole: Rehearsed) -> RehearsedDocument:
    """Build the document."""
    hosts = tuple(
        RehearsedHost(host=host, outcome=rehearsal.outcome, simulated=rehearsal.name)
        for rehearsal in whole.rehearsals
        for host in rehearsal.hosts
    )
    verdicts = Counter(map(format_verdict, whole.rehearsals))
    return conclude(
        RehearsedDocument,
        whole,
        (),
        whole.seconds,
        summary=sum_up(
            RehearsedSummary,
            format_summary(whole),
            (host.outcome for host in hosts),
            simulated=len(whole.rehearsals),
            verdicts=dict(verdicts),
        ),
        hosts=hosts,
        rehearsals=tuple(build_host(rehearsal) for rehearsal in whole.rehearsals),
        reality=tuple(fill(Thing, row, told=row.detail) for row in build_table(whole.descriptions)),
    )


def build_host(rehearsal: Rehearsal) -> SimulatedHost:
    results = tuple(fill(Told, result) for result in rehearsal.results)
    return fill(SimulatedHost, rehearsal, verdict=format_verdict(rehearsal), results=results)
