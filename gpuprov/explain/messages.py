"""A log -> the symptoms whose messages stand in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gpuprov.catalog.context import fold, named_xid
from gpuprov.catalog.symptoms import Symptom, of_line, possible_in, signatures_in, symptoms, symptoms_of
from gpuprov.explain.lines import gpu_addresses, statements, with_device
from gpuprov.masking import masked
from gpuprov.onhost.kernel_lines import OF_A_PROGRAM, STAMP, joined

LONGEST_LINE = 4000
"""Characters of a line that are searched."""
_OF_A_PROGRAM = re.compile(STAMP + OF_A_PROGRAM)
"""A line of the kernel in which whoever runs a program has chosen its words."""


class Seen(msgspec.Struct, frozen=True):
    """A symptom in a text: how often, and the first line that shows it."""

    symptom: Symptom
    count: int
    line: str


def symptoms_in(text: str) -> list[Seen]:
    """Each symptom once, the most telling first: Xids, then long messages before short ones, single words last. One whose lines
    ask for different things comes once for each."""
    lines = [line[:LONGEST_LINE] for line in statements(joined(text.splitlines()))]
    gpus = gpu_addresses(lines)
    folded = [(line, fold(with_device(line, gpus))) for line in lines]
    found = _xids(lines)
    for said, where in sorted(_spoken(folded).items(), key=lambda pair: (" " not in pair[0], -len(pair[0]))):
        shown: dict[str, tuple[Symptom, list[str]]] = {}
        for line, context in where:
            for symptom in symptoms_of(said, context):
                shown.setdefault(symptom.key, (symptom, []))[1].append(line)
        found += [Seen(symptom, len(those), _short(those[0])) for symptom, those in shown.values()]
    first: dict[tuple[str, str], Seen] = {}
    for seen in found:
        first.setdefault((seen.symptom.key, seen.symptom.action), seen)
    return list(first.values())


def _xids(lines: Iterable[str]) -> list[Seen]:
    """The Xids that lines name, each with what its lines ask for."""
    found: dict[int, list[str]] = {}
    for line in lines:
        if "xid" not in line.casefold() or _OF_A_PROGRAM.match(line):
            continue
        if (named := named_xid(line)) and len(named) < 5:
            found.setdefault(int(named), []).append(line)
    seen = []
    for symptom in symptoms():
        asked: dict[Symptom, list[str]] = {}
        for number in symptom.xids:
            for line in found.get(number, ()):
                asked.setdefault(of_line(symptom, number, line), []).append(line)
        seen += [Seen(one, len(those), _short(those[0])) for one, those in asked.items()]
    return seen


def _spoken(folded: list[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """The lines by the message that they hold, each with its folded text."""
    found: dict[str, list[tuple[str, str]]] = {}
    possible = possible_in("\n".join(text for _, text in folded))
    for line, text in folded if possible else ():
        for said in signatures_in(text, possible):
            found.setdefault(said, []).append((line, text))
    return found


def _short(line: str) -> str:
    """A line as it is shown: without secrets, in one line of at most 200 characters."""
    line = " ".join(masked(line)[0].split())
    return line if len(line) <= 200 else line[:200] + " ..."
