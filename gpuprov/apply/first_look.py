"""The decision about a host from its reading: what to do, or the reason why nothing can be done."""

from collections.abc import Collection
from contextlib import suppress
from datetime import datetime

from gpuprov.apply.model import HostOutcome, Options
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.host import house
from gpuprov.fleet.specs import locate_request
from gpuprov.host_code import fence, machine
from gpuprov.plan.decide import decide
from gpuprov.plan.extra import of_rollback
from gpuprov.plan.read import Pair, Reading
from gpuprov.render import digests
from gpuprov.spec.model import HostSpec
from gpuprov.spec.overrides import get_max_clock_skew
from gpuprov.verify.evaluate import Result, broken, is_broken
from gpuprov.verify.unmanaged import in_words


def first_look(pair: Pair, reading: Reading, options: Options) -> HostOutcome:
    """Return the outcome of a host before anything is changed; `ran` names what is to be done."""
    name = pair[0].name
    if reading.lost:
        return left(name, reading.lost)
    results = list(reading.results)
    try:
        decision = decide(
            *(pair, results, reading.facts, options.of_plan),
            foreseen=reading.differing,
            prune=in_words(reading.prune),
        )
    except Exception as error:
        results.append(failure := broken(name, "the decision what to apply", error, "preflight"))
        return HostOutcome(
            host=name, results=results, state="blocked", task=failure.check, message=failure.found, fix=failure.fix
        )
    outcome = HostOutcome(host=name, results=results, ran=decision.run, skipped=decision.skipped)
    outcome.reboot_permitted = options.reboot or pair[1].reboot == "if-needed"
    obstacle = next((r for r in results if _must_stop(r, decision.run, options)), None)
    if obstacle and (decision.run or is_broken(obstacle)):
        outcome.state, outcome.task, outcome.culprit = "blocked", obstacle.check, obstacle.capability
        outcome.message, outcome.fix = f"{obstacle.found}; wanted: {obstacle.expected}", obstacle.fix
        outcome.origin = locate_request(pair[1], obstacle.capability, obstacle.fields)
        outcome.ran = {}
    elif decision.run and (other := _find_other_name(reading, name, options)):
        outcome = duplicate(name, other)
    elif decision.run and (newer := _find_later_apply(pair[1], reading, options)):
        outcome.state, outcome.task, outcome.ran = "blocked", "host.receipt", {}
        outcome.origin, outcome.message = locate_request(pair[1], newer[0]), newer[1]
        outcome.fix = "read the inventory again: gpuprov fleet freeze, slice; or begin another roll-out"
    elif decision.run:
        outcome.state = "not-started"
    return outcome


def _find_other_name(reading: Reading, name: str, options: Options) -> str:
    """Return the other name under which this run has worked on the host, in an earlier job of a roll-out; "" if
    none."""
    last = reading.facts.known(house.FENCE)
    return fence.find_other_name(last, {"run": options.run, "name": name}) if last and options.run else ""


def _find_later_apply(spec: HostSpec, reading: Reading, options: Options) -> tuple[str, str] | None:
    """Return the capability that another run has applied to the host since the spec was read, and this run would undo,
    with its description; None if there is none. The clocks of two machines may differ by the tolerance of `host.clock`.
    Changes by this run itself, such as a rollback, do not count. Another gpuprov, whose roles or tables differ, is no
    other spec."""
    try:
        own = (options.run, of_rollback(options.run))
        own_run = not options.asked_at or reading.facts.get(house.FENCE).get("run") in own
        receipt = None if own_run else reading.facts.get(house.RECEIPT)
        requested_at = datetime.fromisoformat(options.asked_at).timestamp() if receipt else 0.0
    except (ProbeFailed, ValueError):
        return None
    present = digests(spec) if receipt else {}
    for name, record in receipt.capabilities.items() if receipt else ():
        if name in present and record.digest != present[name]:
            with suppress(ValueError):
                if datetime.fromisoformat(record.applied_at).timestamp() > requested_at + get_max_clock_skew(spec.site):
                    message = f"{name} was brought to another spec at {record.applied_at}"
                    return name, f"{message}, after what is asked here was read ({options.asked_at})"
    return None


def _must_stop(result: Result, run: Collection[str], options: Options) -> bool:
    """Return whether a result keeps the host from being changed. A drain command takes care of GPU clients, and a run
    that only prepares leaves them alone."""
    if is_broken(result):
        return result.moment == "preflight"
    if not result.stops or result.status != "fail" or result.capability not in {*run, "host"}:
        return False
    return not ((options.drain or options.act == "prepare") and result.drained)


def duplicate(name: str, other: str) -> HostOutcome:
    """Return the outcome of a host that the run already has under another name."""
    message, fix = machine.explain_refusal(other)
    return HostOutcome(host=name, state="blocked", task="host.machine", message=message, fix=fix)


def left(name: str, error: GpuprovError) -> HostOutcome:
    """Return the outcome of a host that takes no part in the run, for this reason."""
    if isinstance(error, UnreachableError):
        message, fix = lost(error)
        return HostOutcome(host=name, state="unreachable", message=message, fix=fix)
    return HostOutcome(host=name, state="blocked", message=error.message.removeprefix(f"{name}: "), fix=error.fix)


def lost(error: UnreachableError) -> tuple[str, str]:
    """Return message and fix without the host's name, so that an outage of many hosts is reported once."""
    if isinstance(error, Unreached):
        return error.reason, f"{error.advice}: gpuprov verify shows how" if error.command else error.advice
    return error.message, error.fix
