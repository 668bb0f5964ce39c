"""A run as text and as JSON. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpuprov.apply.model import DONE, ApplyRun, HostOutcome
from gpuprov.inventory.names import folded as names
from gpuprov.report.fold import that_follow
from gpuprov.report.text import unproven
from gpuprov.shown import hanging

WORDS = ("changed", "unchanged", "failed", "blocked", "locked", "unreachable", "not-started", "prepared")


def as_json(run: ApplyRun) -> str:
    """`{"run", "hosts": [...], "exit_code", "locked": [names], "log", ...}`."""
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(run, log=None))
    for host, outcome in zip(plain["hosts"], run.hosts, strict=True):
        host["reboot_required"] = outcome.reboot
        host["results"] = [row for row in host["results"] if row["status"] != "n/a"]
    plain |= {"log": str(run.log or ""), "exit_code": run.exit_code, "locked": run.locked}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()


def as_text(run: ApplyRun, *, verbose: bool = False, width: int = 0) -> str:
    """A block per host, hosts that fared alike told once; the last line sums up. Broken between words at `width`; 0: not at all."""
    folded: dict[bytes, list[HostOutcome]] = {}
    for outcome in run.hosts:
        folded.setdefault(_likeness(outcome, verbose), []).append(outcome)
    lines = [line for group in folded.values() for line in _block(group, verbose)]
    return "\n".join(piece for line in [*lines, *_end(run)] for piece in hanging(line, width))


def _block(group: Sequence[HostOutcome], verbose: bool) -> Iterable[str]:
    outcome = group[0]
    title = names(o.host for o in group) + (f" ({len(group)} hosts)" if len(group) > 1 else "")
    yield f"{title}: {_headline(group)}"
    if outcome.hint:
        yield f"  fix: {outcome.hint}"
    if outcome.rolled_back:
        yield f"  {outcome.rolled_back}"
    if verbose:
        yield from (f"  changed {task}" for task in outcome.changed)
        yield from (f"  left out {name}: {why}" for name, why in outcome.skipped.items())
    if outcome.state == "prepared":
        yield from (f"  still to do, by apply: {name}: {why}" for name, why in outcome.ran.items())
    if outcome.state in ("blocked", "locked", "unreachable", "not-started", "prepared"):
        return
    for reason in outcome.reboot:
        yield f"  reboot required: {reason}"
    open_questions = outcome.unproven if outcome.state != "failed" else []
    if verbose:
        yield from (f"  not proven {result.check}: {result.found}" for result in open_questions)
    elif open_questions:
        yield f"  not proven: {', '.join(result.check for result in open_questions)} (-v says why)"
    for result in outcome.failing:
        if not result.reboot and not result.follows:
            yield f"  {result.status} {result.check}: {result.found}" + (
                f"; wanted: {result.expected}" if result.expected else ""
            )
            if result.hint:
                yield f"    fix: {result.hint}"
    if following := [result.check for result in outcome.failing if result.follows]:
        yield f"  and {that_follow(len(following))}: {', '.join(following)}"


def _headline(group: Sequence[HostOutcome]) -> str:
    outcome = group[0]
    took = f" in {max(o.seconds for o in group):.0f} s" if any(o.seconds for o in group) else ""
    verdict = _verdict(outcome)
    if outcome.state == "changed":
        most = max(len(o.changed) for o in group)
        return f"changed ({most} task{'s' if most != 1 else ''}{took}), {verdict}"
    if outcome.state == "prepared":
        most = max(len(o.changed) for o in group)
        done = f"changed {most} task{'s' if most != 1 else ''}" if most else "nothing had to be changed"
        return f"prepared ({done}{took}); nothing in service was changed"
    if outcome.state == "unchanged":
        return f"unchanged{took if outcome.ran else ''}, {verdict}"
    place = f"{outcome.task}: " if outcome.task else ""
    return f"{outcome.state}: {place}{outcome.message}" if outcome.message else outcome.state


def _verdict(outcome: HostOutcome) -> str:
    if outcome.failing:
        return "verify is not green"
    if not outcome.verified:
        return "not verified"
    return (
        f"verify found nothing wrong, but {unproven(len(outcome.unproven))}" if outcome.unproven else "verify is green"
    )


def _end(run: ApplyRun) -> Iterable[str]:
    if run.stopped:
        yield f"stopped: {run.stopped}"
    if run.interrupted:
        yield "interrupted: run it again to complete it"
    yield f"{summary(run)}; {run.seconds:.1f} s"
    if run.log:
        yield f"log: {run.log}"


def summary(run: ApplyRun) -> str:
    """`4 hosts: 3 changed, 1 failed; of these 1 not as wanted`: each host once before `of these`, and after it only those that were
    brought to their end."""
    states = [outcome.state for outcome in run.hosts]
    states_told = ", ".join(f"{states.count(word)} {word}" for word in WORDS if word in states)
    words: list[str] = []
    waiting = [outcome.reboot_permitted for outcome in run.hosts if outcome.reboot and outcome.state != "prepared"]
    if held := waiting.count(False):
        words.append(f"{held} waiting for a reboot (apply --reboot, or reboot: if-needed)")
    if still := waiting.count(True):
        words.append(f"{still} still waiting for a reboot, which this run was permitted (reboot by hand, then verify)")
    failing = sum(one.wrong and not one.reboot for one in run.hosts if one.state in DONE)
    words += [f"{failing} not as wanted"] if failing else []
    if partly := sum(bool(one.unproven) for one in run.hosts if one.state in DONE and one.state != "prepared"):
        words.append(f"{partly} not fully proven")
    count = len(run.hosts)
    return f"{count} host{'s' if count != 1 else ''}: {states_told}" + (
        f"; of these {', '.join(words)}" if words else ""
    )


def _likeness(outcome: HostOutcome, verbose: bool) -> bytes:
    told = [[r.check, r.status, r.found, r.expected, r.hint, r.reboot] for r in outcome.failing]
    alike: list[object] = [
        outcome.state,
        outcome.task,
        outcome.message,
        outcome.hint,
        outcome.rolled_back,
        told,
        [[r.check, r.found if verbose else ""] for r in outcome.unproven],
        bool(outcome.results),
        outcome.ran if outcome.state == "prepared" else bool(outcome.ran),
    ]
    return msgspec.json.encode([*alike, *([outcome.changed, outcome.skipped] if verbose else [])])
