"""One gather of hosts, evaluated: what plan and apply decide by."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gpuprov.capabilities.base import Moment
from gpuprov.capabilities.host.login import ansible_version
from gpuprov.capabilities.mig import partitions
from gpuprov.errors import UnreachableError
from gpuprov.gather.command import SHELL
from gpuprov.gather.gather import gather_each
from gpuprov.gather.pace import Pace
from gpuprov.gather.settings import Settings
from gpuprov.onhost import machine
from gpuprov.plan.decide import PROBES
from gpuprov.plan.foresee import Foreseen, foresee, probes
from gpuprov.probe.base import Facts, Probe, ProbeFailed
from gpuprov.probe.driver import nvidia
from gpuprov.probe.host import house
from gpuprov.probe.host.checkpoints import CHECKPOINTS
from gpuprov.probe.host.login import PYTHON
from gpuprov.probe.kernel.first_boot import FIRST_BOOT
from gpuprov.shared import reach
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result, evaluate, probes_of

Pair = tuple[RawHost, HostSpec]
ALL: tuple[Moment, ...] = ("preflight", "now", "next-boot")
ALSO = (*PROBES, house.LOCK, house.FENCE, house.MACHINE, CHECKPOINTS)
"""What is read of every host beside what its checks ask."""
KEPT = (*ALSO, FIRST_BOOT, nvidia.DRIVER, PYTHON, *partitions.READS)
"""What deciding, planning and Ansible's way to the host read once the checks have been evaluated; a fleet's other facts are let go."""


class Reading(msgspec.Struct, frozen=True):
    """The state of a host: its results, the facts that are read after them (`KEPT`), and what its roles would do; `lost`: the error
    where it could not be reached."""

    facts: Facts
    results: tuple[Result, ...]
    lost: UnreachableError | None = None
    foreseen: Foreseen | None = None

    @property
    def differing(self) -> dict[str, str]:
        """By capability, what differs that its role brings about."""
        return self.foreseen.differing if self.foreseen else {}

    @property
    def prune(self) -> dict[str, Any]:
        """What the role is handed that takes away what the spec asks for no longer; empty for nothing."""
        return self.foreseen.prune if self.foreseen else {}

    @property
    def fence(self) -> str | None:
        """The token of the host's lock as it was read; None where that could not be."""
        try:
            return self.facts.get(house.FENCE).get("token", "")
        except ProbeFailed:
            return None


def duplicates(readings: Mapping[str, Reading]) -> dict[str, str]:
    """By name, an earlier one of the same machine."""
    return machine.duplicates({name: one.facts.known(house.MACHINE) or "" for name, one in readings.items()})


def for_ansible(pair: Pair, reading: Reading) -> Pair:
    """The host as Ansible should reach it: by the Python that was judged and by the shell that was used, unless the inventory says
    others."""
    raw, spec = pair
    settings, found = Settings(raw), {}
    if not settings.python:
        with contextlib.suppress(ProbeFailed):  # then the role decides
            found["ansible_python_interpreter"] = reach.chosen(reading.facts.get(PYTHON), ansible_version())
    if not settings.text("shell"):
        found["ansible_shell_executable"] = SHELL[0]
    return msgspec.structs.replace(raw, connection={**raw.connection, **{k: v for k, v in found.items() if v}}), spec


def read(
    pairs: Sequence[Pair],
    moments: tuple[Moment, ...] = ALL,
    *,
    only: frozenset[str] | None = None,
    pace: Pace | None = None,
    on_done: Callable[[str], None] | None = None,
    each: Callable[[str, Reading], None] | None = None,
    keep: bool = True,
    prune_only: Mapping[str, Collection[str]] = {},
) -> dict[str, Reading]:
    """Every host's reading, in the order given. only: the checks of these capabilities (the house's stay). each: told of a reading as
    soon as it is there, one at a time. keep: else nothing of a host is kept once `each` was told. prune_only: by host,
    the capabilities of which alone anything is to be taken away."""
    asked = [(raw, tuple(probes_for(spec, moments, only))) for raw, spec in pairs]
    specs = {raw.name: spec for raw, spec in pairs}
    readings: dict[str, Reading] = {}

    def judge(name: str, found: Facts | UnreachableError) -> None:
        if isinstance(found, UnreachableError):
            readings[name] = Reading(Facts({}), (), found)
        else:
            results = tuple(evaluate(specs[name], found, moments, only=only))
            foreseen = foresee(specs[name], found, results, only)
            if name in prune_only:
                foreseen = foreseen.pruning(specs[name], found, prune_only[name])
            readings[name] = Reading(found.only(KEPT), results, foreseen=foreseen)
        if each:
            each(name, readings[name] if keep else readings.pop(name))
        if on_done:
            on_done(name)

    gather_each(asked, judge, pace=pace)
    return {raw.name: readings[raw.name] for raw, _ in pairs if keep}


def probes_for(
    spec: HostSpec, moments: tuple[Moment, ...] = ALL, only: frozenset[str] | None = None
) -> Iterable[Probe[Any]]:
    """Return the probes that `read` runs on a host, each once."""
    found = {probe.name: probe for probe in (*probes_of(spec, moments, only=only), *ALSO)}
    for probe in probes(spec, only):
        found.setdefault(probe.name, probe)
    return found.values()
