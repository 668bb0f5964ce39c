"""A rehearsal as text. Pure functions."""

from collections.abc import Iterable, Iterator

from gpuprov.core.sanitize import counted, hanging
from gpuprov.inventory.names import fold_names as names
from gpuprov.rehearse.model import ACTS, Rehearsal, Rehearsed
from gpuprov.rehearse.reality import build_table
from gpuprov.rehearse.seen import cut_lines
from gpuprov.report.text import unproven
from gpuprov.simulate.description import Description

# Lines of one list, without -v.
MOST = 12
VERDICTS = {
    0: "green",
    1: "DIFFERS from the spec",
    2: "cannot be simulated",
    3: "apply FAILED",
    4: "a simulated host did NOT come up",
}
INTERRUPTED = "not rehearsed to the end"


def format_text(whole: Rehearsed, *, verbose: bool = False, width: int = 0) -> str:
    """Format a block per simulated host, then what was simulated; the last line sums up. Broken between words at
    `width`; 0: not at all."""
    lines: list[str] = []
    for rehearsal in whole.rehearsals:
        lines += [*format_block(rehearsal, verbose), ""]
    lines += [*format_reality(whole.descriptions), *format_end(whole)]
    return "\n".join(piece for line in lines for piece in hanging(line, width))


def format_block(rehearsal: Rehearsal, verbose: bool) -> Iterator[str]:
    count = f" ({len(rehearsal.hosts)} hosts)" if len(rehearsal.hosts) > 1 else ""
    yield f"{names(rehearsal.hosts)}{count}: {format_verdict(rehearsal)}{format_gap([rehearsal], 'here')}"
    if rehearsal.problem:
        yield f"  {rehearsal.problem}"
        if rehearsal.fix:
            yield f"  fix: {rehearsal.fix}"
        return
    yield f"  rehearsed on {rehearsal.name}: {format_host(rehearsal.description)}"
    yield from (f"  note: {note}" for note in rehearsal.notes)
    yield from (f"  left out: {entry}" for entry in rehearsal.left_out)
    for step in rehearsal.steps:
        yield f"  {step.name:<13}{step.verdict:<12}{step.seconds:>6.1f} s  {step.told}"
        yield from (f"    {line}" for line in step.details)
    yield from (f"  {act:<13}{'not done':<12}" for act in ACTS[len(rehearsal.steps) :])
    yield from format_changes(rehearsal, MOST if not verbose else 10_000)
    yield from format_unproved(rehearsal)
    if rehearsal.login:
        yield f"  log in: {rehearsal.login}"


def format_verdict(rehearsal: Rehearsal) -> str:
    """Describe the end of the rehearsal."""
    cut = not rehearsal.problem and len(rehearsal.steps) < len(ACTS) and (rehearsal.going or not rehearsal.steps)
    return INTERRUPTED if cut else VERDICTS[rehearsal.exit_code]


def format_gap(rehearsals: Iterable[Rehearsal], place: str) -> str:
    """Say of green rehearsals what nevertheless nobody proved; empty if that is nothing."""
    green = [rehearsal for rehearsal in rehearsals if rehearsal.exit_code == 0]
    waived = sum(len(rehearsal.judged.waived) for rehearsal in green if rehearsal.judged)
    left = sum(len(rehearsal.left_out) for rehearsal in green)
    gaps = [f"{unproven(waived)} {place}"] * bool(waived)
    gaps += [f"{counted(left, 'part')} of the spec {'was' if left == 1 else 'were'} left out"] * bool(left)
    return f", but {' and '.join(gaps)}" if gaps else ""


def format_changes(rehearsal: Rehearsal, most: int) -> Iterator[str]:
    if rehearsal.seen is None:
        yield f"  production would see: unknown, because {explain_unseen(rehearsal)}"
        return
    yield "  production would see"
    parts = {"packages": rehearsal.seen.packages, "files": rehearsal.seen.files, "services": rehearsal.seen.services}
    for title, entries in parts.items():
        yield from format_list(
            f"{title} ({len(entries)})" if entries else title, cut_lines(entries, most) or ["unchanged"]
        )
    yield from format_list("reboot", [rehearsal.seen.reboot])
    yield from format_list(
        "GPU clients stopped", list(rehearsal.seen.clients) or ["none on a new host; production's are not known"]
    )


def explain_unseen(rehearsal: Rehearsal) -> str:
    """Say why the changes of an apply are not known."""
    applied = rehearsal.step("apply")
    if applied and applied.verdict == "ok":
        return "packages, files and services of the simulated host could not be listed before and after apply"
    return "apply did not succeed on the simulated host"


def format_unproved(rehearsal: Rehearsal) -> Iterator[str]:
    if rehearsal.judged is None:
        return
    yield "  the rehearsal could not prove"
    for waived in rehearsal.judged.waived:
        yield f"    {waived.check}: {waived.reason}"
    for row in rehearsal.judged.unproved:
        yield f"    {row.check}: {row.found} (no waiver: this counts as an error)"
    if not (rehearsal.judged.waived or rehearsal.judged.unproved):
        yield "    nothing that verify asks was left out"


def format_list(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"    {title}"
    yield from (f"      {line}" for line in lines)


def format_host(description: Description | None) -> str:
    """Format a simulated host in a line."""
    if description is None:
        return "nothing"
    words = [f"{description.kind} with {description.distribution}"]
    words += [f"{description.gpu.count} x {description.gpu.model}"] if description.gpu else ["no GPU"]
    words += [f"NVSwitch generation {description.nvswitch}"] if description.nvswitch else []
    words += [f"{description.hcas} HCAs"] if description.hcas else []
    words += [f"driver {description.driver}"] if description.driver else []
    words += [f"faults: {' '.join(description.faults)}"] if description.faults else []
    return ", ".join(words)


def format_reality(descriptions: list[Description]) -> Iterator[str]:
    rows = build_table(descriptions)
    if not rows:
        return
    wide = max(len(row.thing) for row in rows)
    yield "what it ran on"
    yield from (f"  {row.thing:<{wide}}  {row.how:<9}  {row.detail}" for row in rows)
    yield ""


def format_end(whole: Rehearsed) -> Iterator[str]:
    if (
        whole.kept
        and not whole.interrupted
        and (kept := [rehearsal.name for rehearsal in whole.rehearsals if rehearsal.login])
    ):
        yield f"kept; remove: gpuprov simulate down {' '.join(kept)}"
    if whole.leftovers:
        yield f"NOT removed; remove by hand: gpuprov simulate down {' '.join(whole.leftovers)}"
    if whole.interrupted:
        yield "interrupted: the simulated hosts were removed" if not whole.leftovers else "interrupted"
    yield from (f"log: {log}" for log in whole.logs)
    yield f"{format_summary(whole)}; {whole.seconds:.0f} s; no real host was contacted"


def format_summary(whole: Rehearsed) -> str:
    """Format the summary: `2 simulated hosts for 33 real hosts: 1 green, 1 apply FAILED`."""
    real = sum(len(rehearsal.hosts) for rehearsal in whole.rehearsals)
    verdicts = [format_verdict(rehearsal) for rehearsal in whole.rehearsals]
    words = [f"{verdicts.count(word)} {word}" for word in (*VERDICTS.values(), INTERRUPTED) if word in verdicts]
    done = (
        f"{len(verdicts)} simulated host{'s' if len(verdicts) != 1 else ''} for {real} real "
        f"host{'s' if real != 1 else ''}"
    )
    less = sum(bool(rehearsal.left_out) for rehearsal in whole.rehearsals)
    return f"{done}: {', '.join(words)}" + (f"; parts of {counted(less, 'spec')} left out" if less else "")
