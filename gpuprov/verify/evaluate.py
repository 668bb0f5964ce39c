"""One host's spec and facts -> results, in memory. A check that breaks is a result too, never a crash."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, Literal, NamedTuple

import msgspec

from gpuprov.capabilities.base import Capability, Change, Check, Context, Counter, Moment, Outcome
from gpuprov.core.errors import DEFECT, defect
from gpuprov.facts.probes.base import Facts, NotRecorded, Probe, ProbeFailed
from gpuprov.facts.probes.gpus.fabric import NvlinkError
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import TOOLS, family
from gpuprov.facts.probes.host.hardware import Firmware
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.verify.causes import cause

ResultStatus = Literal["pass", "fail", "skip", "error", "unreachable", "n/a"]
FAILING: tuple[ResultStatus, ...] = ("fail", "error")
MOMENTS: tuple[Moment, ...] = ("now", "next-boot")


# The check of which no host is asked, and that fails where gpuprov itself breaks.
JUDGED = "host.judged"
# The result of a host whose record could not be read whole.
RECORDED = "host.recorded"
# The check of a host that is out of its scheduler: about where the host is, not what it is.
IN_SERVICE = "host.in_service"
# The check of a host's distribution: where it fails nothing else is worth mending for apply.
SUPPORTED = "host.supported"


class Result(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The result of one check on one host.

    `evidence` is the command that shows the same to a person on the host; `follows` the failing check of the host
    without which this one would not have failed; `action` what makes an unhealthy host fit again, `devices` the PCI
    addresses that it is about; empty: not known, or the whole host.
    """

    host: str
    capability: str
    check: str
    fields: tuple[str, ...] = ()
    status: ResultStatus
    expected: str = ""
    found: str = ""
    evidence: str = ""
    fix: str = ""
    moment: Moment = "now"
    changes: tuple[Change, ...] = ()
    reboot: str = ""
    version: str = ""
    installed: str = ""
    gate: bool = False
    follows: str = ""
    action: str = ""
    counters: tuple[Counter, ...] = ()
    firmware: tuple[Firmware, ...] = ()
    machine: str = ""
    devices: tuple[str, ...] = ()
    nvlink_errors: tuple[NvlinkError, ...] = ()

    @property
    def stops(self) -> bool:
        """True if apply skips the host while this check fails."""
        return self.gate or self.moment == "preflight"

    @property
    def refuses(self) -> bool:
        """True if apply skips the host: the check fails, or gpuprov itself failed, so that the state is unknown."""
        return (self.stops and self.status == "fail") or is_broken(self)

    @property
    def drained(self) -> bool:
        """True if the check is about the users of the GPUs, which a drain command handles."""
        return self.check.endswith(".clients") and not is_broken(self)


class Registry(NamedTuple):
    """The capabilities there are, and the house's own checks, which every host gets first."""

    capabilities: tuple[Capability, ...]
    house: Capability
    house_fragment: Callable[[HostSpec], Fragment]


def registry() -> Registry:
    """The registry of gpuprov itself."""
    from gpuprov.capabilities import CAPABILITIES, HOUSE, house_fragment

    return Registry(CAPABILITIES, HOUSE, house_fragment)


def evaluate(
    host: HostSpec,
    facts: Facts,
    moments: Collection[Moment] = MOMENTS,
    *,
    only: Collection[str] | None = None,
    stops: bool = False,
    registered: Registry | None = None,
    run: frozenset[str] | None = None,
) -> list[Result]:
    """Every check of these moments that concerns the host: the house's first, then each capability in apply order.

    `only`: no other capabilities than these (the house's checks stay). `stops`: of whatever moment, those while which
    fail apply leaves the host alone. `run`: the capabilities that are applied in this run, where one is under way.
    """
    first: Moment = "preflight" if stops or "preflight" in moments else "now"
    results = [unjudged(host.name, problem, fix, first) for problem, fix in host.defects]
    tools = package_tools(facts)
    try:
        for check, fragment in _list_requested(host, moments, only, registered or registry(), stops=stops):
            results.append(_make_result(host.name, check, _run(check, Context(host, fragment, facts, run)), tools))
    except Exception as error:
        results.append(broken(host.name, "the choice of checks", error, first))
    return caused(results)


def caused(results: Sequence[Result]) -> list[Result]:
    """The results of one host, those that only follow from another with its name."""
    failing = {result.check for result in results if result.status in FAILING}
    return [
        msgspec.structs.replace(result, follows=root)
        if result.check in failing
        and (root := cause(result.check, failing, unknown=result.status == "error" and not is_broken(result)))
        else result
        for result in results
    ]


def probes_of(
    host: HostSpec,
    moments: Collection[Moment] = MOMENTS,
    *,
    only: Collection[str] | None = None,
    stops: bool = False,
    registered: Registry | None = None,
) -> tuple[Probe[Any], ...]:
    """The probes that `evaluate` with the same arguments reads, each once, in a stable order."""
    entries = _list_requested(host, moments, only, registered or registry(), stops=stops)
    return tuple({probe.name: probe.of(host) for check, _ in entries for probe in check.probes}.values())


def checks_of(
    host: HostSpec, moments: Collection[Moment] = MOMENTS, *, registered: Registry | None = None
) -> list[Check]:
    """The checks that `evaluate` runs, in its order."""
    return [check for check, _ in _list_requested(host, moments, None, registered or registry())]


def _list_requested(
    host: HostSpec, moments: Collection[Moment], only: Collection[str] | None, known: Registry, *, stops: bool = False
) -> Iterator[tuple[Check, Fragment]]:
    owners = [(known.house, known.house_fragment(host))]
    for capability in known.capabilities:
        if capability.name in host.capabilities and (only is None or capability.name in only):
            owners.append((capability, host.capabilities[capability.name]))
    for owner, fragment in owners:
        for check in owner.checks:
            if check.stops if stops else check.moment in moments:
                yield check, fragment


def _run(check: Check, context: Context[Any]) -> Outcome:
    try:
        return check.run(context)
    except NotRecorded as error:
        return Outcome(status="skip", found=str(error))
    except ProbeFailed as error:
        return Outcome(
            status="error",
            found=str(error),
            fix=error.fix or "run the command on the host and see why it cannot be read",
        )
    except Exception as error:
        problem, fix = defect(f"the check {check.id}", error)
        return Outcome(status="error", found=problem, fix=fix)


def broken(host: str, where: str, error: Exception, moment: Moment = "now") -> Result:
    """The result of a host that could not be judged, because `where` broke."""
    return unjudged(host, *defect(where, error), moment)


def unjudged(host: str, message: str, fix: str, moment: Moment = "now") -> Result:
    """The same, of a defect that was told before."""
    return Result(
        host=host,
        capability="host",
        check=JUDGED,
        status="error",
        expected="gpuprov can judge the host",
        found=message,
        fix=fix,
        moment=moment,
    )


def is_broken(result: Result) -> bool:
    """Return whether a result says that gpuprov itself failed: the state of the host is then unknown."""
    return result.status == "error" and result.fix.startswith(DEFECT)


def package_tools(facts: Facts) -> tuple[str, ...]:
    """The programs for packages that the host's distribution has; nothing where it is not known."""
    try:
        package_family = family(facts.get(system.OS_RELEASE))
    except ProbeFailed:
        return ()
    return TOOLS[package_family] if package_family else ()


@lru_cache(maxsize=4096)
def shown_here(evidence: str, tools: tuple[str, ...]) -> str:
    """Commands separated by semicolons, without those of package managers that the host does not have."""
    foreign = {tool for known in TOOLS.values() for tool in known if tools and tool not in tools}
    return "; ".join(part for part in evidence.split("; ") if part.partition(" ")[0] not in foreign)


def _make_result(host: str, check: Check, outcome: Outcome, tools: tuple[str, ...] = ()) -> Result:
    """The texts that thousands of hosts have in common are kept once."""
    return Result(
        host=host,
        capability=check.capability,
        check=check.id,
        fields=check.fields,
        status=outcome.status,
        expected=intern(outcome.expected),
        found=intern(outcome.found),
        evidence=intern(shown_here(outcome.evidence or check.evidence, tools)),
        fix=intern(outcome.fix),
        moment=check.moment,
        changes=outcome.changes,
        reboot=outcome.reboot,
        version=outcome.version,
        installed=outcome.installed,
        gate=check.gate,
        action=outcome.action,
        counters=outcome.counters,
        firmware=outcome.firmware,
        machine=outcome.machine,
        devices=outcome.devices,
        nvlink_errors=outcome.nvlink_errors,
    )
