"""One gather of hosts, evaluated: what plan and apply decide by."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec

from gpuprov.capabilities.base import Moment
from gpuprov.capabilities.host import ansible_version
from gpuprov.errors import UnreachableError
from gpuprov.gather.command import SHELL
from gpuprov.gather.gather import gather
from gpuprov.gather.pace import Pace
from gpuprov.gather.settings import Settings
from gpuprov.plan.decide import PROBES
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.login import PYTHON
from gpuprov.shared import reach
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result, evaluate, probes_of

Pair = tuple[RawHost, HostSpec]
ALL: tuple[Moment, ...] = ("preflight", "now", "next-boot")
AFTER: tuple[Moment, ...] = ("now", "next-boot")


class Reading(msgspec.Struct, frozen=True):
    """What a host is: its facts and the checks' results; or, in `lost`, why it could not be reached."""

    facts: Facts
    results: tuple[Result, ...]
    lost: UnreachableError | None = None


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
) -> dict[str, Reading]:
    """Every host's reading, in the order given. only: the checks of these capabilities (the house's stay)."""
    asked = [(raw, tuple(dict.fromkeys([*probes_of(spec, moments, only=only), *PROBES]))) for raw, spec in pairs]
    found = gather(asked, pace=pace, on_done=(lambda name, _result: on_done(name)) if on_done else None)
    readings = {}
    for raw, spec in pairs:
        facts = found[raw.name]
        if isinstance(facts, UnreachableError):
            readings[raw.name] = Reading(Facts({}), (), facts)
        else:
            readings[raw.name] = Reading(facts, tuple(evaluate(spec, facts, moments, only=only)))
    return readings
