"""Changes on the host since its last apply, and the states that it can go back to."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gpuprov.core.sanitize import counted
from gpuprov.drift.judge import judge
from gpuprov.drift.model import HostDrift
from gpuprov.drift.text import WORDS, format_cause
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import checkpoints, house
from gpuprov.facts.probes.software import history
from gpuprov.host_page.read import ReadHost
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import lines

# Maximum number of acts of repairs on a page.
REPAIRS = 10


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """`sentence`: how the host stands to its last apply. `rows`: a label and a text each. `unread`: why nothing is
    known."""

    sentence: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    unread: str = ""


def list_changes(host: ReadHost, facts: Facts, results: Sequence[Result]) -> Changes:
    """List them. `results`: those of what the spec asks for. Without a receipt that could be read, nothing is
    claimed."""
    try:
        facts.get(house.RECEIPT)
    except ProbeFailed as error:
        return Changes(unread=f"What was applied is not known: {error}.")
    drift = judge(host.spec, results, facts)
    rows = [*_list_applied(drift), *_list_differences(drift, facts), *_list_checkpoints(facts), *_list_repairs(facts)]
    return Changes(sentence=WORDS[drift.state], rows=tuple(rows))


def _list_applied(drift: HostDrift) -> list[tuple[str, str]]:
    rows = [("last apply", f"{drift.applied_at} with gpuprov {drift.applied_with}")] if drift.applied_at else []
    rows += [("why", drift.why)] if drift.why else []
    rows += [("cut off", "the last apply did not end: apply again")] if drift.cut_off else []
    rows += [("spec changed", f"{name}: {what}") for name, what in drift.spec_changed.items()]
    return rows


def _list_differences(drift: HostDrift, facts: Facts) -> list[tuple[str, str]]:
    roots = [difference for difference in drift.differences if not difference.follows]
    rows = [
        (root.check, f"{root.found}\nby: {'; '.join(map(format_cause, root.causes))}") for root in roots if root.causes
    ]
    if lacking := len(roots) - len(rows):
        rows.append(("causes", f"of {counted(lacking, 'difference')} none is known: {_explain(facts)}"))
    rows += [("noted", format_cause(cause)) for cause in drift.noted]
    if drift.harmless:
        rows.append(("packages", f"{counted(drift.harmless, 'package')} changed that no check minds"))
    return [*rows, *(("no longer managed", line) for line in lines(drift.unmanaged))]


def _explain(facts: Facts) -> str:
    """Explain why a difference has no cause here."""
    try:
        facts.get(history.HISTORY)
    except ProbeFailed as error:
        return str(error)
    return "no log of the host's package managers names one, and no reading of its own"


def _list_checkpoints(facts: Facts) -> list[tuple[str, str]]:
    try:
        kept = facts.get(checkpoints.CHECKPOINTS)
    except ProbeFailed as error:
        return [("checkpoints", str(error))]
    rows = [("verify was green", f"{kept.last_at}, run {kept.last.run}")] if kept.last and kept.last_at else []
    rows += [("checkpoint", f"{each.at}, run {each.run}, gpuprov {each.gpuprov_version}") for each in kept.all[::-1]]
    rows += [("rollback", f"to run {kept.target} is not finished")] if kept.target else []
    return rows


def _list_repairs(facts: Facts) -> list[tuple[str, str]]:
    """List the last acts of repairs, the newest first."""
    acts = (facts.known(checkpoints.REPAIRS) or ())[: -1 - REPAIRS : -1]
    return [("repair", _describe_repair(act)) for act in acts]


def _describe_repair(act: checkpoints.Repair) -> str:
    at = datetime.fromtimestamp(act.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    gpus = f" of {', '.join(act.gpus)}" if act.gpus else ""
    return f"{at} {act.act}{gpus} for {', '.join(act.checks)}, run {act.run}{f': {act.problem}' if act.problem else ''}"
