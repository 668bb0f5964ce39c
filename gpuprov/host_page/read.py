"""All that the page of a host shows, read in one login or from a record."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.health import watched
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.core.time_limits import HOST_LIMIT
from gpuprov.drift.judge import PROBES as DRIFT
from gpuprov.facts.captures import Record, RecordedFacts
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes.base import Facts, Probe
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import fabric, gpu_health, mig
from gpuprov.facts.probes.host import checkpoints, hardware, system
from gpuprov.facts.probes.kernel.kernel_log import KERNEL_LOG
from gpuprov.facts.probes.software import packages
from gpuprov.hardware.topology.model import PROBES as WIRING
from gpuprov.report import known
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify import recorded
from gpuprov.verify.evaluate import Result
from gpuprov.verify.listing import probes_of
from gpuprov.verify.verify import Pairs, unreachable, verify_each

PROBES: tuple[Probe[Any], ...] = (
    system.IDENTITY,
    hardware.HARDWARE,
    checkpoints.CHECKPOINTS,
    checkpoints.REPAIRS,
    KERNEL_LOG,
    packages.PACKAGES,
    nvidia.DRIVER,
    fabric.DAEMON,
    gpu_health.GPU_HEALTH,
    mig.STATE,
    *WIRING,
    *known.PROBES,
    *DRIFT,
)


class ReadHost(msgspec.Struct, kw_only=True):
    """A host with its spec as the inventory has it."""

    raw: RawHost
    spec: HostSpec
    # Of all its checks and of those of `health`.
    results: list[Result]
    # What was read, or why the host was not reached.
    facts: Facts | UnreachableError
    # Where it was read instead of on the host.
    record: Record | None = None


def require_one_host(pairs: Pairs) -> tuple[RawHost, HostSpec]:
    """Return the only host. Raises GpuprovError if there are several."""
    if len(pairs) > 1:
        names = ", ".join(raw.name for raw, _ in pairs[:4])
        raise GpuprovError(
            f"--html is the page of one host, and HOST means {len(pairs)}: {names}",
            "name one of them; gpuprov verify --html is the page of many",
        )
    return pairs[0]


def read_host(raw: RawHost, spec: HostSpec, *, timeout: float = HOST_LIMIT, pace: Pace | None = None) -> ReadHost:
    """Read the host once, for its checks, for the list of `gpuprov show` and for the page."""
    read_hosts: list[ReadHost] = []

    def note(_: str, results: list[Result], facts: Facts | UnreachableError) -> None:
        read_hosts.append(ReadHost(raw=raw, spec=spec, results=results, facts=facts))

    extra = {probe.name: probe for probe in (*probes_of(spec, BY_NAME), *(probe.of(spec) for probe in PROBES))}
    verify_each([(raw, watched(spec))], note, timeout=timeout, pace=pace, also=tuple(extra.values()))
    return read_hosts[0]


def read_recorded(
    raw: RawHost,
    spec: HostSpec,
    records: Iterable[Record],
    others: Sequence[str] = (),
    *,
    note: Callable[[str], None] = lambda text: None,
) -> ReadHost:
    """Return the same from the host's record; those of the inventory's `others` are passed over. Raises GpuprovError if
    there is none, or several."""
    facts = recorded.read([(raw, spec)], records, named=True, others=others, note=note).get(raw.name)
    if facts is None:
        raise GpuprovError(f"--from names no record of {raw.name}", "name its record, or a folder that has it")
    results = [unreachable(raw.name, facts)] if isinstance(facts, Unreached) else recorded.judge(watched(spec), facts)
    record = facts.record if isinstance(facts, RecordedFacts) else None
    return ReadHost(raw=raw, spec=spec, results=results, facts=facts, record=record)
