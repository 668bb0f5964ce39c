"""A log -> the symptoms whose messages stand in it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuprov.catalog.symptoms import XID, Symptom, fold, possible_in, signatures_in, symptoms, symptoms_of
from gpuprov.masking import masked
from gpuprov.onhost.kernel_lines import joined

LONGEST_LINE = 4000
"""Characters of a line that are searched."""


class Seen(msgspec.Struct, frozen=True):
    """A symptom in a text: how often, and the first line that shows it."""

    symptom: Symptom
    count: int
    line: str


def symptoms_in(text: str) -> list[Seen]:
    """Each symptom once, the most telling first: Xids, then long messages before short ones, single words last."""
    lines = [line[:LONGEST_LINE] for line in joined(text.splitlines())]
    xids = _xids(lines)
    known = symptoms()
    found = [Seen(symptom, *_seen(xids, symptom.xids)) for symptom in known if any(n in xids for n in symptom.xids)]
    for said, where in sorted(_spoken(lines).items(), key=lambda pair: (" " not in pair[0], -len(pair[0]))):
        shown: dict[str, tuple[Symptom, list[str]]] = {}
        for line in where:
            for symptom in symptoms_of(said, fold(line)):
                shown.setdefault(symptom.key, (symptom, []))[1].append(line)
        found += [Seen(symptom, len(those), _short(those[0])) for symptom, those in shown.values()]
    first: dict[str, Seen] = {}
    for seen in found:
        first.setdefault(seen.symptom.key, seen)
    return list(first.values())


def _xids(lines: Iterable[str]) -> dict[int, list[str]]:
    """The lines that name an Xid, by its number."""
    found: dict[int, list[str]] = {}
    for line in lines:
        if "xid" in line.casefold() and (named := XID.search(line)) and len(named[1]) < 5:
            found.setdefault(int(named[1]), []).append(line)
    return found


def _seen(xids: dict[int, list[str]], numbers: Iterable[int]) -> tuple[int, str]:
    lines = [line for number in numbers for line in xids.get(number, ())]
    return len(lines), _short(lines[0])


def _spoken(lines: Iterable[str]) -> dict[str, list[str]]:
    """The lines by the message that they hold."""
    found: dict[str, list[str]] = {}
    folded = [(line, fold(line)) for line in lines]
    possible = possible_in("\n".join(text for _, text in folded))
    for line, text in folded if possible else ():
        for said in signatures_in(text, possible):
            found.setdefault(said, []).append(line)
    return found


def _short(line: str) -> str:
    """A line as it is shown: without secrets, in one line of at most 200 characters."""
    line = " ".join(masked(line)[0].split())
    return line if len(line) <= 200 else line[:200] + " ..."
