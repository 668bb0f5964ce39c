"""One gather of hosts, evaluated: the input of plan and apply."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from gpuprov.capabilities.base import Moment
from gpuprov.capabilities.host.login import ansible_version
from gpuprov.capabilities.mig import partitions
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.collect.command import SHELL
from gpuprov.facts.collect.gather import gather_each
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.collect.settings import Settings
from gpuprov.facts.probes.base import Facts, Probe, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import house
from gpuprov.facts.probes.host.checkpoints import CHECKPOINTS
from gpuprov.facts.probes.host.system import PYTHON
from gpuprov.facts.probes.kernel.first_boot import FIRST_BOOT
from gpuprov.host_code import machine
from gpuprov.host_code.json_members import Json
from gpuprov.plan.decide import PROBES
from gpuprov.plan.foresee import Foreseen, foresee, probes
from gpuprov.rules import reach
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result, evaluate, probes_of

Pair = tuple[RawHost, HostSpec]
ALL: tuple[Moment, ...] = ("preflight", "now", "next-boot")
# Probes of every host beside those of its checks.
ALSO = (*PROBES, house.LOCK, house.FENCE, house.MACHINE, CHECKPOINTS)
# Facts needed by decisions, planning and Ansible's connection once the checks are evaluated; a fleet's other facts are
# dropped.
KEPT = (*ALSO, FIRST_BOOT, nvidia.DRIVER, PYTHON, *partitions.READS)


class Reading(msgspec.Struct, frozen=True):
    """The state of a host: its results, the facts needed after them (`KEPT`), and what its roles would do."""

    facts: Facts
    results: tuple[Result, ...]
    # The error if it was unreachable.
    lost: UnreachableError | None = None
    foreseen: Foreseen | None = None

    @property
    def differing(self) -> dict[str, str]:
        """Return, by capability, the differences that its role would resolve."""
        return self.foreseen.differing if self.foreseen else {}

    @property
    def prune(self) -> dict[str, Json]:
        """Return the role's arguments for removing what the spec no longer declares; empty for nothing."""
        return self.foreseen.prune if self.foreseen else {}

    @property
    def fence(self) -> str | None:
        """Return the token of the host's lock as it was read; None if it could not be read."""
        try:
            return self.facts.get(house.FENCE).get("token", "")
        except ProbeFailed:
            return None


def duplicates(readings: Mapping[str, Reading]) -> dict[str, str]:
    """Return, by name, an earlier host that is the same machine."""
    return machine.find_duplicates(
        {name: reading.facts.known(house.MACHINE) or "" for name, reading in readings.items()}
    )


def for_ansible(pair: Pair, reading: Reading) -> Pair:
    """Return the host as Ansible should connect to it: with the Python that was judged and the shell that was used,
    unless the inventory sets others."""
    raw, spec = pair
    settings, variables = Settings(raw), {}
    if not settings.python:
        with contextlib.suppress(ProbeFailed):  # then the role decides
            variables["ansible_python_interpreter"] = reach.chosen(reading.facts.get(PYTHON), ansible_version())
    if not settings.text("shell"):
        variables["ansible_shell_executable"] = SHELL[0]
    return msgspec.structs.replace(
        raw, connection={**raw.connection, **{k: v for k, v in variables.items() if v}}
    ), spec


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
    """Return every host's reading, in the order given. only: the checks of these capabilities (the house's stay). each:
    called with each reading as soon as it is available, one at a time. keep: if false, drop a host's data after `each`
    was called. prune_only: by host, the capabilities that removals are limited to."""
    requests = [(raw, tuple(probes_for(spec, moments, only))) for raw, spec in pairs]
    specs = {raw.name: spec for raw, spec in pairs}
    readings: dict[str, Reading] = {}

    def judge(name: str, outcome: Facts | UnreachableError) -> None:
        if isinstance(outcome, UnreachableError):
            readings[name] = Reading(Facts({}), (), outcome)
        else:
            results = tuple(evaluate(specs[name], outcome, moments, only=only))
            foreseen = foresee(specs[name], outcome, results, only)
            if name in prune_only:
                foreseen = foreseen.pruning(specs[name], outcome, prune_only[name])
            readings[name] = Reading(outcome.only(KEPT), results, foreseen=foreseen)
        if each:
            each(name, readings[name] if keep else readings.pop(name))
        if on_done:
            on_done(name)

    gather_each(requests, judge, pace=pace)
    return {raw.name: readings[raw.name] for raw, _ in pairs if keep}


def probes_for(
    spec: HostSpec, moments: tuple[Moment, ...] = ALL, only: frozenset[str] | None = None
) -> Iterable[Probe[Any]]:
    """Return the probes that `read` runs on a host, each once."""
    by_name = {probe.name: probe for probe in (*probes_of(spec, moments, only=only), *ALSO)}
    for probe in probes(spec, only):
        by_name.setdefault(probe.name, probe)
    return by_name.values()
