"""A rehearsal as text. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuprov.inventory.names import folded as names
from gpuprov.rehearse.model import ACTS, Rehearsal, Rehearsed
from gpuprov.rehearse.reality import table
from gpuprov.rehearse.seen import brief
from gpuprov.report.text import unproven
from gpuprov.shown import hanging
from gpuprov.simulate.description import Description

MOST = 12
"""Lines of one list, without -v."""
VERDICTS = {
    0: "green",
    1: "NOT as wanted",
    2: "cannot be simulated",
    3: "apply FAILED",
    4: "a simulated host did NOT come up",
}
INTERRUPTED = "not rehearsed to the end"


def as_text(whole: Rehearsed, *, verbose: bool = False, width: int = 0) -> str:
    """A block per simulated host, then what was simulated; the last line sums up. Broken between words at `width`; 0: not at all."""
    lines: list[str] = []
    for one in whole.rehearsals:
        lines += [*_block(one, verbose), ""]
    lines += [*_reality(whole.descriptions), *_end(whole)]
    return "\n".join(piece for line in lines for piece in hanging(line, width))


def _block(one: Rehearsal, verbose: bool) -> Iterator[str]:
    count = f" ({len(one.hosts)} hosts)" if len(one.hosts) > 1 else ""
    waived = len(one.judged.waived) if one.judged and one.exit_code == 0 else 0
    yield f"{names(one.hosts)}{count}: {verdict(one)}" + (f", but {unproven(waived)} here" if waived else "")
    if one.problem:
        yield f"  {one.problem}"
        if one.hint:
            yield f"  fix: {one.hint}"
        return
    yield f"  rehearsed on {one.name}: {described(one.description)}"
    yield from (f"  note: {note}" for note in one.notes)
    for step in one.steps:
        yield f"  {step.name:<13}{step.verdict:<12}{step.seconds:>6.1f} s  {step.told}"
        yield from (f"    {line}" for line in step.details)
    yield from (f"  {act:<13}{'not done':<12}" for act in ACTS[len(one.steps) :])
    yield from _seen(one, MOST if not verbose else 10_000)
    yield from _unproved(one)
    if one.login:
        yield f"  log in: {one.login}"


def verdict(one: Rehearsal) -> str:
    """How it ended, in words."""
    cut = not one.problem and len(one.steps) < len(ACTS) and (one.going or not one.steps)
    return INTERRUPTED if cut else VERDICTS[one.exit_code]


def _seen(one: Rehearsal, most: int) -> Iterator[str]:
    if one.seen is None:
        yield "  production would see: unknown, because apply did not succeed on the simulated host"
        return
    yield "  production would see"
    parts = {"packages": one.seen.packages, "files": one.seen.files, "services": one.seen.services}
    for title, found in parts.items():
        yield from _listed(f"{title} ({len(found)})" if found else title, brief(found, most) or ["unchanged"])
    yield from _listed("reboot", [one.seen.reboot])
    yield from _listed(
        "GPU clients stopped", list(one.seen.clients) or ["none on a new host; production's are not known"]
    )


def _unproved(one: Rehearsal) -> Iterator[str]:
    if one.judged is None:
        return
    yield "  the rehearsal could not prove"
    for waived in one.judged.waived:
        yield f"    {waived.check}: {waived.reason}"
    for row in one.judged.unproved:
        yield f"    {row.check}: {row.found} (no waiver: this counts as an error)"
    if not (one.judged.waived or one.judged.unproved):
        yield "    nothing that verify asks was left out"


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"    {title}"
    yield from (f"      {line}" for line in lines)


def described(one: Description | None) -> str:
    """A simulated host in a line."""
    if one is None:
        return "nothing"
    words = [f"{one.kind} with {one.distribution}"]
    words += [f"{one.gpu.count} x {one.gpu.model}"] if one.gpu else ["no GPU"]
    words += [f"NVSwitch generation {one.nvswitch}"] if one.nvswitch else []
    words += [f"{one.hcas} HCAs"] if one.hcas else []
    words += [f"driver {one.driver}"] if one.driver else []
    words += [f"faults: {' '.join(one.faults)}"] if one.faults else []
    return ", ".join(words)


def _reality(descriptions: list[Description]) -> Iterator[str]:
    rows = table(descriptions)
    if not rows:
        return
    wide = max(len(row.thing) for row in rows)
    yield "what it ran on"
    yield from (f"  {row.thing:<{wide}}  {row.how:<9}  {row.told}" for row in rows)
    yield ""


def _end(whole: Rehearsed) -> Iterator[str]:
    if whole.kept and not whole.interrupted and (kept := [one.name for one in whole.rehearsals if one.login]):
        yield f"kept; remove: python -m gpuprov.simulate down {' '.join(kept)}"
    if whole.leftovers:
        yield f"NOT removed; remove by hand: python -m gpuprov.simulate down {' '.join(whole.leftovers)}"
    if whole.interrupted:
        yield "interrupted: the simulated hosts were removed" if not whole.leftovers else "interrupted"
    yield from (f"log: {log}" for log in whole.logs)
    yield f"{summary(whole)}; {whole.seconds:.0f} s; no real host was contacted"


def summary(whole: Rehearsed) -> str:
    """`2 simulated hosts for 33 real hosts: 1 green, 1 apply FAILED`."""
    real = sum(len(one.hosts) for one in whole.rehearsals)
    found = [verdict(one) for one in whole.rehearsals]
    words = [f"{found.count(word)} {word}" for word in (*VERDICTS.values(), INTERRUPTED) if word in found]
    done = f"{len(found)} simulated host{'s' if len(found) != 1 else ''} for {real} real host{'s' if real != 1 else ''}"
    return f"{done}: {', '.join(words)}"
