"""Folded results on the terminal and in files, in the form of `gpuprov verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal

import msgspec

from gpuprov.apply.model import NOT_DONE
from gpuprov.core import terminal
from gpuprov.core.errors import Outcome
from gpuprov.core.fill import fill
from gpuprov.jobs.fold import Folded, sentence
from gpuprov.report import results as reporting
from gpuprov.report.as_json import Boot, Verified, VerifiedHost, VerifiedRow, causes, summarize
from gpuprov.report.document import conclude
from gpuprov.report.fold import summed
from gpuprov.report.many import Alike
from gpuprov.verify.verify import Verdict

if TYPE_CHECKING:
    from gpuprov.report.files import ReportFiles
    from gpuprov.report.page import About

OUTCOMES: dict[Verdict, Outcome] = {"matches": "ok", "differs": "differs", "not proven": "not proven"}
# Number of hosts written at a time.
LINES = 500


class FoldedHost(VerifiedHost, frozen=True, kw_only=True):
    """A host as in verify, with the act and its outcome; not-done: there is no result."""

    act: Literal["", "verify", "plan", "prepare", "apply"]
    state: str


class FoldedReport(Verified, kw_only=True, tag="fleet fold"):
    """The document that `gpuprov fleet fold --json` prints, a line for each host and each result. Passed checks are
    only counted."""

    states: dict[str, int]
    unread: int
    unread_files: tuple[str, ...]
    hosts: tuple[FoldedHost, ...]


def show(
    folded: Folded,
    files: ReportFiles,
    about: About,
    groups: Mapping[str, Sequence[str]],
    *,
    as_json: bool,
    verbose: bool,
) -> None:
    """Print the report and write the requested files. `about`, `groups` by host: for the HTML page."""
    from gpuprov.report.fleet import Known

    reporting.show(
        folded.many,
        _join(lines(folded)),
        as_json=as_json,
        verbose=verbose,
        files=files,
        took=folded.seconds,
        title="gpuprov fleet fold",
        about=about,
        known={host: Known(groups=tuple(names)) for host, names in groups.items()},
    )
    for line in sentence(folded):
        (terminal.progress if as_json else terminal.result)(line)


def _join(parts: Iterator[str]) -> Iterator[str]:
    while part := list(islice(parts, LINES)):
        yield "\n".join(part)


def lines(folded: Folded) -> Iterator[str]:
    """Yield the JSON document, a line at a time: memory use does not grow with its size."""
    many, numbers = folded.many, summed(folded.many)
    head = conclude(
        FoldedReport,
        folded.tally,
        (),
        None,
        verdict=numbers.verdict,
        summary=summarize(numbers, [_judge(folded, entry) for entry in many.hosts.values()]),
        states=dict(folded.states),
        unread=folded.unread,
        unread_files=tuple(folded.unread_files),
        causes=causes(many),
        racks=tuple(many.racks),
        hosts=(),
        results=(),
    )
    plain = msgspec.to_builtins(head)
    del plain["hosts"], plain["results"]
    yield f"{msgspec.json.encode(plain).decode()[:-1]},"
    yield '"hosts":['
    yield from _join_chunks(_list_hosts(folded))
    yield '],"results":['
    yield from _join_chunks(_list_rows(folded))
    yield "]}"


def _list_hosts(folded: Folded) -> Iterator[FoldedHost]:
    for host, entry in folded.many.hosts.items():
        yield FoldedHost(
            host=host,
            outcome=_judge(folded, entry),
            verdict=entry.verdict,
            counts=dict(entry.counts),
            next_boot=fill(Boot, entry.next_boot),
            seconds=folded.seconds.get(host),
            act=entry.act,  # type: ignore[arg-type]
            state=entry.state,
        )


def _judge(folded: Folded, entry: Alike) -> Outcome:
    if entry.state == "not-started":
        return folded.tally.waits
    if entry.state in NOT_DONE:
        return NOT_DONE[entry.state]
    return "unreachable" if any(row.status == "unreachable" for row in entry.rows) else OUTCOMES[entry.verdict]


def _list_rows(folded: Folded) -> Iterator[VerifiedRow]:
    for host, entry in folded.many.hosts.items():
        for row in entry.rows:
            yield fill(VerifiedRow, row, host=host)


def _join_chunks(values: Iterable[object]) -> Iterator[str]:
    waiting = ""
    encode: Callable[[object], bytes] = msgspec.json.Encoder().encode
    for value in values:
        if waiting:
            yield f"{waiting},"
        waiting = encode(value).decode()
    if waiting:
        yield waiting
