"""A fleet -> results: which probes the checks need, one exec per host, every check in memory; and what follows from
them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal, Self, TypedDict, Unpack

import msgspec

from gpuprov.capabilities.base import Moment
from gpuprov.core import terminal
from gpuprov.core.errors import Code, Outcome, UnreachableError, choose_code, find_worst
from gpuprov.core.time_limits import HOST_LIMIT
from gpuprov.facts.collect.gather import gather_each
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.facts.probes.host import house
from gpuprov.host_code import machine
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.causes import AT_BOOT
from gpuprov.verify.evaluate import MOMENTS, Registry, Result, ResultStatus, evaluate, probes_of, registry
from gpuprov.verify.racks import compare_hosts

REACHABLE = "host.reachable"

Pairs = Sequence[tuple[RawHost, HostSpec]]


class NextBoot(msgspec.Struct, frozen=True):
    """Will the host be as its spec wants it after the next reboot? `reasons` say why not, or why nobody knows."""

    verdict: Literal["right", "wrong", "unknown"]
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons)
        return {
            "right": "right: a reboot leaves it as it is",
            "wrong": f"NOT right: {reasons}",
            "unknown": f"unknown: {reasons}",
        }[self.verdict]

    def shorten(self, most: int = 3, where: str = "") -> Self:
        """Return the verdict with the first of its reasons and the number of the others. `where`: what names those."""
        if (more := len(self.reasons) - most) <= 1:
            return self
        return msgspec.structs.replace(self, reasons=(*self.reasons[:most], f"and {more:,} more{where}"))


class VerifyOptions(TypedDict, total=False):
    """How hosts are verified. `took` gets seconds, by host. also: what is read beside what the checks need, for those
    which are called for each host."""

    only: Collection[str] | None
    pace: Pace | None
    timeout: float
    registered: Registry
    took: dict[str, float]
    also: Sequence[Probe[Any]]


def verify(
    fleet: Pairs,
    moments: Collection[Moment] = MOMENTS,
    *,
    on_done: Callable[[str, Facts | UnreachableError], None] | None = None,
    **options: Unpack[VerifyOptions],
) -> list[Result]:
    """Read every host once and evaluate its checks: results in the order of the fleet. A host that cannot be reached is
    one result.

    A host is judged as soon as it has answered, and what it answered is let go once `on_done` was told; what depends on
    other hosts is judged at the end.
    """
    results_by_host: dict[str, list[Result]] = {}

    def note(name: str, results: list[Result], facts: Facts | UnreachableError) -> None:
        results_by_host[name] = results
        if on_done:
            on_done(name, facts)

    verify_each(fleet, note, moments, **options)
    return compare_hosts([result for raw, _ in fleet for result in results_by_host[raw.name]])


def verify_each(
    fleet: Pairs,
    on_judged: Callable[[str, list[Result], Facts | UnreachableError], None],
    moments: Collection[Moment] = MOMENTS,
    **options: Unpack[VerifyOptions],
) -> None:
    """The same, told host by host as each has answered; nothing of a host is kept once `on_judged` was told."""
    known, only = options.get("registered") or registry(), options.get("only")
    specs = {raw.name: spec for raw, spec in fleet}
    machines = dict.fromkeys(specs, "")
    also = (*options.get("also", ()), house.MACHINE)

    def judge(name: str, facts: Facts | UnreachableError) -> None:
        if isinstance(facts, UnreachableError):
            on_judged(name, [unreachable(name, facts)], facts)
        else:
            machines[name] = facts.known(house.MACHINE) or ""
            on_judged(name, evaluate(specs[name], facts, moments, only=only, registered=known), facts)

    requests = []
    for raw, spec in fleet:
        probes = probes_of(spec, moments, only=only, registered=known)
        known_probes = {probe.name for probe in probes}
        requests.append((raw, (*probes, *(probe for probe in also if probe.name not in known_probes))))
    limit = options.get("timeout", HOST_LIMIT)
    gather_each(requests, judge, pace=options.get("pace"), timeout=limit, took=options.get("took"))
    for warning in machine.list_warnings(machines):
        terminal.warning(warning)


def unreachable(host: str, error: UnreachableError) -> Result:
    """The one result of a host that cannot be reached; equal for hosts that fail alike, but for the evidence."""
    message = (
        error if isinstance(error, Unreached) else Unreached(host, error.message.removeprefix(f"{host}: "), error.fix)
    )
    return Result(
        host=host,
        capability="host",
        check=REACHABLE,
        status="unreachable",
        expected="the host answers",
        found=message.reason,
        evidence=message.command,
        fix=message.advice,
    )


# Actions that a boot takes the place of: it resets the GPUs and ends all programs, and nobody is made to boot for it.
MENDED_BY_BOOT = ("restart", "reset", "reboot")


# The reason of an open verdict for which there is no other.
NOT_CONCERNED = "no check of the next boot concerns this host"


def next_boot(results: Iterable[Result]) -> dict[str, NextBoot]:
    """The next-boot verdict of every host, from its `next-boot` results and what fails now.

    A check that fails now and that a reboot fixes counts as right; one that a reboot does not fix leaves the verdict
    open, since whoever starts the service or fixes the file may do so before or after the reboot. It counts as right,
    too, where a unit brings it about at each boot, and that is proven. What only follows from another failure is not
    told beside it. What asks nothing of the host (n/a) says nothing of its next boot.
    """
    all_results = list(results)
    proven = {(result.host, result.check) for result in all_results if result.status == "pass"}
    wrong: dict[str, list[str]] = {}
    unknown: dict[str, list[str]] = {}
    seen: dict[str, bool] = {}
    for result in all_results:
        later = result.moment == "next-boot" and result.status != "n/a"
        seen[result.host] = seen.get(result.host, False) or later
        reason = f"{result.check}: {result.found}" if result.found else result.check
        if later and result.status == "fail":
            wrong.setdefault(result.host, []).append(reason)
        elif result.follows or (result.status == "fail" and (result.host, AT_BOOT.get(result.check, "")) in proven):
            continue
        elif result.status in ("error", "unreachable") or (later and result.status == "skip"):
            unknown.setdefault(result.host, []).append(reason)
        elif result.status == "fail" and result.action in MENDED_BY_BOOT:
            continue
        elif result.status == "fail" and not result.reboot:
            unknown.setdefault(result.host, []).append(f"{result.check} fails now and a reboot does not fix it")
    return {host: _judge_next_boot(wrong.get(host), unknown.get(host), any_check) for host, any_check in seen.items()}


def _judge_next_boot(wrong: list[str] | None, unknown: list[str] | None, any_check: bool) -> NextBoot:
    if wrong:
        return NextBoot("wrong", tuple(wrong))
    if unknown or not any_check:
        return NextBoot("unknown", tuple(unknown or [NOT_CONCERNED]))
    return NextBoot("right")


Verdict = Literal["matches", "differs", "not proven"]
VERDICTS: dict[Outcome, Verdict] = {"ok": "matches", "not proven": "not proven", "nothing asked": "not proven"}


def judge_hosts(results: Iterable[Result]) -> dict[str, Outcome]:
    """Return the outcome of each host.

    A pass of the house's own checks that proves no field of the spec does not count: it says nothing about the spec.
    """
    statuses: dict[str, set[ResultStatus]] = {}
    for result in results:
        host_statuses = statuses.setdefault(result.host, set())
        if result.status != "pass" or result.capability != "host" or result.fields:
            host_statuses.add(result.status)
    return {host: _judge(host_statuses) for host, host_statuses in statuses.items()}


def _judge(statuses: Collection[ResultStatus]) -> Outcome:
    if "unreachable" in statuses:
        return "unreachable"
    if "fail" in statuses or "error" in statuses:
        return "differs"
    return "ok" if "pass" in statuses else "not proven" if "skip" in statuses else "nothing asked"


def verdict(results: Iterable[Result]) -> Verdict:
    """Return the verdict on all results. "not proven": nothing is wrong, but on some host with skipped checks, or on
    all hosts, none passed."""
    return VERDICTS.get(find_worst(judge_hosts(results).values()), "differs")


def exit_code(results: Iterable[Result]) -> Code:
    """Return the exit code of verify."""
    return choose_code(judge_hosts(results).values())
