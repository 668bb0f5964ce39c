"""A log -> the symptoms whose messages it contains."""

import io
import re
from collections import deque
from functools import cache
from typing import IO, NamedTuple

import msgspec

from gpuprov.capabilities.health.past import find_endings
from gpuprov.catalog.context import find_xid, fold
from gpuprov.catalog.lookup import find_sxid
from gpuprov.catalog.signatures import Rank as Specificity
from gpuprov.catalog.signatures import find_held
from gpuprov.catalog.symptoms import Symptom, list_symptoms, resolve_for_line
from gpuprov.catalog.verdicts import Standing, Verdict, explained, judge_line, judge_xid
from gpuprov.catalog.xids import SEVERITY, Action
from gpuprov.core.masking import masked
from gpuprov.explain.choosing import LONGEST_LINE, chosen
from gpuprov.explain.lines import devices_in, gpu_addresses, statements
from gpuprov.facts.probes.kernel.kernel_log import FIRST, KernelLog, Line
from gpuprov.facts.probes.kernel.stamps import read_stamp
from gpuprov.host_code.kernel_lines import OF_A_PROGRAM, STAMP, join_messages

# A line of the kernel whose text was chosen by the user of a program.
_OF_A_PROGRAM = re.compile(STAMP + OF_A_PROGRAM)
# The year of stamps without one: only the time between lines matters.
_LEAP_YEAR = 2000
# Maximum number of lines kept until the end of a log, to know whether their device is a GPU.
_MOST_PENDING = 10_000
# What a line may say of its host, the gravest first.
_STANDINGS: tuple[Standing, ...] = ("unfit", "unknown", "reported", "recovered")
_LIGHTEST = len(_STANDINGS) * len(SEVERITY)

Rank = tuple[bool, int, Specificity]


class Seen(msgspec.Struct, frozen=True):
    """A symptom in a text: its count, and the first line that shows it."""

    symptom: Symptom
    count: int
    line: str
    # Of the first line that the kernel logged.
    verdict: Verdict | None = None
    # Whether no such line asks for anything any more, since something ended them or an Xid 154 of the same GPU decides.
    ended: bool = False
    # What ended the last of them.
    past: str = ""
    # Whether only the part of the program that printed it is known, not the message.
    by_part: bool = False
    # Whether hosts that are well print all of its lines, too.
    harmless: bool = False


class _Shown(NamedTuple):
    """A symptom in one line, and its rank: Xids first, the gravest before the others, then by `Held.rank`; lines that
    only follow from others last."""

    rank: Rank
    symptom: Symptom
    verdict: Verdict | None = None
    by_part: bool = False
    harmless: bool = False


class _Pending(NamedTuple):
    """A line with another symptom if one of these devices is a GPU."""

    devices: frozenset[str]
    line: str
    more: list[_Shown]


class _Log:
    """The symptoms of a log's lines so far."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, str], tuple[Rank, Seen]] = {}
        self.pending: list[_Pending] = []
        self.judged: deque[Line] = deque(maxlen=_MOST_PENDING)
        self.boot = 0.0
        self.count = 0

    def read(self, line: str) -> None:
        self.count += 1
        shown = _find_shown(line)
        self.note(line, shown)
        stamped = read_stamp(line, _LEAP_YEAR)
        if stamped.at is not None and not stamped.since_boot and FIRST.match(stamped.text):
            self.boot = stamped.at
        if stamped.of_kernel and stamped.at is not None and judge_line(stamped.text):
            self.judged.append(Line(stamped.at, stamped.text))
        devices = devices_in(line)
        if devices and len(self.pending) < _MOST_PENDING:
            keys = {entry.symptom.key for entry in shown}
            more = [entry for entry in _find_shown(f"{line} (nvidia)") if entry.symptom.key not in keys]
            if more:
                self.pending.append(_Pending(devices, line, more))

    def note(self, line: str, shown: list[_Shown]) -> None:
        for rank, symptom, verdict, by_part, harmless in shown:
            key = (
                symptom.key,
                f"{symptom.action} {symptom.cause}",
                verdict.action if verdict and verdict.number else "",
            )
            first = Seen(symptom, 0, _shorten_line(line), by_part=by_part, harmless=harmless)
            best, seen = self.known.get(key, (rank, first))
            if harmless and not seen.harmless:
                continue
            seen = msgspec.structs.replace(
                first if seen.harmless and not harmless else seen,
                count=seen.count * (seen.harmless == harmless) + 1,
                verdict=seen.verdict or verdict,
                by_part=seen.by_part and by_part,
            )
            self.known[key] = (min(best, rank), seen)

    def end(self, of_a_gpu: set[str]) -> list[Seen]:
        for entry in self.pending:
            if entry.devices & of_a_gpu:
                self.note(entry.line, entry.more)
        ranked = sorted(self.known.values(), key=lambda pair: pair[0])
        sightings = [seen for _, seen in ranked if not seen.harmless or self.count < 2]
        ends = _find_ends(tuple(self.judged), self.boot)
        return [
            msgspec.structs.replace(sighting, ended=True, past=ends[key])
            if sighting.verdict and (key := (sighting.verdict.key, sighting.verdict.action)) in ends
            else sighting
            for sighting in sightings
        ]


def _find_ends(lines: tuple[Line, ...], boot: float) -> dict[tuple[str, Action], str]:
    """Return what ended the last line of each key and action that asks for something, if no line of these stands; empty
    where an Xid 154 decides in its place. `boot`: the last one in the log, 0 if it has none."""
    endings = find_endings(KernelLog(lines=lines, boot=boot, since=0.0 if boot else None))
    ends: dict[tuple[str, Action], str] = {}
    stand = set()
    for place, line in enumerate(lines):
        verdict = judge_line(line.text)
        if verdict is None or verdict.standing not in ("unfit", "unknown"):
            continue
        if endings.stands(place):
            stand.add((verdict.key, verdict.action))
        ending = endings.find(place)
        ends[verdict.key, verdict.action] = ending.words if ending else ""
    return {key: words for key, words in ends.items() if key not in stand}


def symptoms_in(log: str | IO[bytes]) -> list[Seen]:
    """Return each symptom once, the most specific first: Xids, the gravest before the others, then by `Held.rank`;
    lines that only follow from others come last. A symptom whose lines need different actions appears once for each.
    Messages that hosts print that are well count only if the log is one line. A log that is a stream is read as it
    comes, and never kept."""
    stream = io.BytesIO("\n".join(log.splitlines()).encode("utf-8", "replace")) if isinstance(log, str) else log
    reader, gpus = _Log(), set[str]()
    for line in statements(join_messages(chosen(stream, lambda line: gpus.update(gpu_addresses((line,)))))):
        if line:
            reader.read(line[:LONGEST_LINE])
    return reader.end(gpus)


def _find_shown(line: str) -> list[_Shown]:
    """Return the symptoms that one line shows: that of its verdict, and those of its messages."""
    last = len(list_symptoms())
    shown = []
    verdict = _find_verdict(line)
    if verdict and (symptom := explained(verdict)):
        at = _rank_verdict(verdict) * last + _places()[symptom.key] if symptom.xids else _LIGHTEST * last
        shown.append(
            _Shown(
                (symptom.follows, at, (False, False, False, False, -LONGEST_LINE * (not symptom.xids))),
                symptom,
                verdict,
            )
        )
    held = [entry for entry in find_held(fold(line)) if not (verdict and entry.symptom.key == verdict.key)]
    follows = bool(held) and held[0].symptom.follows
    return shown + [
        _Shown(
            (follows, _LIGHTEST * last, entry.rank),
            resolve_for_line(entry.symptom, find_sxid(line), line),
            by_part=entry.signature.fallback,
            harmless=entry.is_harmless,
        )
        for entry in held
    ]


def _rank_verdict(verdict: Verdict) -> int:
    """Return the place of a verdict on an Xid among others: what makes a host unfit first, the severest action
    first."""
    return _STANDINGS.index(verdict.standing) * len(SEVERITY) + len(SEVERITY) - 1 - SEVERITY.index(verdict.action)


@cache
def _places() -> dict[str, int]:
    return {symptom.key: at for at, symptom in enumerate(list_symptoms())}


def _find_verdict(line: str) -> Verdict | None:
    """Return the verdict on a line: of the kernel's log, or one that names an Xid otherwise."""
    stamped = read_stamp(line)
    verdict = judge_line(stamped.text) if stamped.of_kernel else None
    if verdict:
        return verdict if verdict.standing != "recovered" else None
    if "xid" in line.casefold() and not _OF_A_PROGRAM.match(line) and (named := find_xid(line)) and len(named) < 5:
        return judge_xid(int(named), line)
    return None


def _shorten_line(line: str) -> str:
    """Return a line as it is printed: without secrets, in one line of at most 200 characters."""
    line = " ".join(masked(line)[0].split())
    return line if len(line) <= 200 else line[:200] + " ..."
