"""Results for people: the problem, the expected and the actual value, the command that shows it, and the fix."""

import re
import sys
from collections.abc import Sequence

from gpuprov.core.sanitize import BOLD, CYAN, FAINT, GREEN, MAGENTA, RED, YELLOW, cleaned, paint, wrapped
from gpuprov.inventory.names import fold_names as names
from gpuprov.report.fold import brief, findings, host_lines, racks_of, summed
from gpuprov.report.folded import LOUD, WORDS, Finding, HostLine, Summed, that_follow
from gpuprov.report.lacking import FEW, fold_lacking, merge_results
from gpuprov.report.many import Many
from gpuprov.verify.evaluate import Result
from gpuprov.verify.racks import Rack
from gpuprov.verify.verify import NextBoot, Verdict

# Colours by status.
COLOURS = {"unreachable": MAGENTA, "fail": RED, "error": YELLOW, "skip": CYAN, "pass": GREEN, "n/a": FAINT}
_MARGIN = 12
NOTHING = "not proven: no host has anything to verify"


def render(
    results: Sequence[Result] | Many,
    *,
    verbose: bool = False,
    colour: bool = False,
    width: int = 100,
    room: int | None = None,
) -> str:
    """Render racks; then findings, the worst first, each once with its hosts; then a line per host or per set of equal
    hosts; then a summary.

    Lines to copy (evidence) are never wrapped. `verbose` also shows passed and n/a results, and every host's name.
    room: maximum width of lists of hosts and of counts, `width` by default; 0: unlimited, so that they can be searched.
    """
    room = width if room is None else room
    if not (numbers := summed(results)).hosts:
        return f"{NOTHING}\n"
    paint, shown = _Paint(colour), names if verbose else brief
    lines = [line for rack in racks_of(results) for line in (*describe_rack(rack, width), "")]
    for finding in findings(results, LOUD):
        lines += [
            *_format_loud(finding, cleaned(shown(finding.hosts)), paint, width, room),
            *following(
                [f"{result.check}: {result.found}" if verbose else result.check for result in finding.followers],
                width,
                each=verbose,
            ),
            "",
        ]
    quiet = findings(results, ("skip", "pass", "n/a") if verbose else ("skip",))
    alone, folded = (quiet, {}) if verbose else fold_lacking((row.result, row.hosts, row) for row in quiet)
    rows = [(finding.result, finding.hosts) for finding in alone]
    rows += [(merge_results(why, [row.result for row in same]), same[0].hosts) for why, same in folded.items()]
    for result, hosts in rows:
        lines += _format_quiet(result, cleaned(shown(hosts)), paint, width)
    lines += [""] if quiet else []
    for line in host_lines(results):
        boot = line.next_boot if verbose else line.next_boot.shorten(FEW, ", which -v names")
        lines += _format_host(line, cleaned(shown(line.hosts)), boot, paint, width, room)
    return "\n".join([*lines, "", *_format_summary(numbers, paint, room)]) + "\n"


class _Paint:
    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, text: str, status: str) -> str:
        return paint(text, COLOURS[status]) if self._colour else text

    def bold(self, text: str) -> str:
        return paint(text, BOLD) if self._colour else text


def _format_loud(finding: Finding, where: str, paint: _Paint, width: int, room: int) -> list[str]:
    result = finding.result
    check, evidence = (cleaned(" ".join(text.split("\n"))) for text in (result.check, result.evidence))
    head = (
        f"{result.status.upper()}  {check}  ",
        f"{paint(result.status.upper(), result.status)}  {paint.bold(check)}  ",
    )
    lines = _lay_out_parts([head, *_split_parts(_format_place(finding.hosts, where), room)], room, " " * 6)
    for label, value in (("expected", result.expected), ("found", result.found)):
        lines += labelled(label, value, width)
    if result.reboot:
        lines += labelled("reboot", result.reboot, width)
    if evidence:
        first = f"  # {cleaned(finding.hosts[0])}" if result.status == "unreachable" and len(finding.hosts) > 1 else ""
        lines.append(f"  {'see':<{_MARGIN - 2}}{evidence}{first}")
    return lines + labelled("fix", result.fix, width)


def _format_quiet(result: Result, where: str, paint: _Paint, width: int) -> list[str]:
    head = f"{result.status}  {cleaned(result.check)}"
    text = f"{head}  {cleaned(result.found)}" + (f"  [{where}]" if where else "")
    first, *rest = wrapped(text, max(width, 40), hang=" " * 6) or [head]
    fix = labelled("fix", result.fix, width) if result.status == "skip" else []
    return [first.replace(result.status, paint(result.status, result.status), 1), *rest, *fix]


def _format_host(line: HostLine, where: str, boot: NextBoot, paint: _Paint, width: int, room: int) -> list[str]:
    pieces = [(plain, paint.bold(plain)) for plain, _ in _split_parts(where, room)]
    more = _format_place(line.hosts, where).removeprefix(where) + "  "
    counts = [(plain, paint(plain, line.worst)) for plain, _ in _split_parts(line.summary, room)]
    lines = _lay_out_parts([*pieces, (more, more), *counts], room, " " * 2)
    if line.worst != "unreachable":
        lines += labelled("next boot", str(boot), width)
    return lines


def _format_place(hosts: Sequence[str], shown: str) -> str:
    cut = "; -v names all" if ", ..." in shown else ""
    return f"{shown} ({len(hosts)} hosts{cut})" if len(hosts) > 1 else shown


def _split_parts(text: str, room: int) -> list[tuple[str, str]]:
    """Split a comma-separated list into parts for `_flow`; a short list stays one part."""
    pieces = re.split(r"(?<=, )", text) if room and len(text) > room // 2 else [text]
    return [(piece, piece) for piece in pieces]


def _lay_out_parts(parts: Sequence[tuple[str, str]], room: int, hang: str) -> list[str]:
    """Lay out parts side by side, each as (text, the same with colours); a line that would be too wide breaks between
    parts."""
    lines, whole = [""], max(room, 40) if room else sys.maxsize
    left = whole
    for plain, painted in parts:
        if left < len(plain.rstrip()) and lines[-1].strip():
            lines.append(hang)
            left = whole - len(hang)
        lines[-1] += painted
        left -= len(plain)
    return [re.sub(r" +(?=(\x1b\[0m)?\Z)", "", line) for line in lines]


def describe_rack(rack: Rack, width: int) -> list[str]:
    """Return what is known of a rack, and what is to be done."""
    return [
        f"rack {cleaned(rack.rack)}: {cleaned(rack.words)}",
        *labelled("because", rack.shows, width),
        *labelled("do", rack.fix, width),
    ]


def labelled(label: str, value: str, width: int, *, whole: bool = False) -> list[str]:
    """Return a value after its label, wrapped, or `whole` if it is to be copied; nothing if it is empty."""
    if not value:
        return []
    lines, space = [cleaned(value)] if whole else cleaned(value).splitlines(), max(width - _MARGIN, 30)
    pieces = lines if whole else [part for line in lines for part in wrapped(line, space) or [""]]
    first = f"  {label:<{_MARGIN - 2}}{pieces[0]}"
    return [first, *(" " * _MARGIN + piece for piece in pieces[1:])]


def following(checks: Sequence[str], width: int, *, each: bool = False) -> list[str]:
    """Return `and 8 that follow`, with their names, `each` on a line if asked."""
    head, _, rest = that_follow(len(checks)).partition(" ")
    names = "".join(f"\n{check}" for check in checks) if each else ", ".join(checks)
    return labelled(f"and {head}", f"{rest}: {names}", width) if checks else []


# Verdicts in words; in JSON they keep their names.
SPOKEN: dict[Verdict, str] = {
    "matches": "matches the spec",
    "differs": "differs from the spec",
    "not proven": "not proven",
}


def format_summary(numbers: Summed) -> str:
    """Format the summary: `differs from the spec: 1 of 2 hosts; checks: 1 failed, 7 passed`."""
    return _format_summary(numbers, _Paint(False), 0)[0] if numbers.hosts else NOTHING


def _format_summary(numbers: Summed, paint: _Paint, room: int) -> list[str]:
    count, counted = numbers.hosts, numbers.counts
    parts = [
        (plain := f"{number:,} {WORDS[status]}", paint(plain, status)) for status, number in counted.items() if number
    ]
    if following := numbers.follow:
        plain = that_follow(following)
        parts.insert(sum(bool(counted[status]) for status in LOUD), (plain, plain))
    verdict = numbers.verdict
    words = SPOKEN[verdict] + (f", but {unproven(counted['skip'])}" if verdict == "matches" and counted["skip"] else "")
    shown = paint.bold(paint(words, {"matches": "pass", "not proven": "skip", "differs": "fail"}[verdict]))
    bad = numbers.bad
    part = f"{bad:,} of " if verdict == "differs" and bad < count else ""
    hosts = [(plain := f"{part}{count:,} host{'s' * (count != 1)}", plain)]
    hosts += [parts.pop(0)] if counted["unreachable"] else []
    first, *rest = [*_add_commas(hosts, "; " if parts else ""), *_add_commas(parts, "")]
    before = [(f"{words}: {first[0]}", f"{shown}: {first[1]}")]
    checks = [(f"checks: {rest[len(hosts) - 1][0]}", f"checks: {rest[len(hosts) - 1][1]}")] if parts else []
    return _lay_out_parts([*before, *rest[: len(hosts) - 1], *checks, *rest[len(hosts) :]], room, " " * 2)


def _add_commas(parts: Sequence[tuple[str, str]], end: str) -> list[tuple[str, str]]:
    """Return the parts with a comma after each but the last."""
    after = [", "] * (len(parts) - 1) + [end]
    return [(plain + mark, painted + mark) for (plain, painted), mark in zip(parts, after, strict=bool(parts))]


def unproven(count: int) -> str:
    """Return `3 checks are not proven`: shown wherever a result with skipped checks would look green."""
    return f"{count:,} check{' is' if count == 1 else 's are'} not proven"
