"""`gpuprov capture`: record everything that checks read on hosts."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gpuprov import __version__
from gpuprov.capabilities import BY_NAME, CAPABILITIES, HOUSE
from gpuprov.capabilities.generated import without_spec
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.captures import captured
from gpuprov.facts.collect import gather
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Probe
from gpuprov.facts.probes.host.checkpoints import CHECKPOINTS
from gpuprov.facts.probes.host.house import MARKER
from gpuprov.facts.probes.host.readings import READINGS
from gpuprov.facts.probes.host.system import IDENTITY
from gpuprov.facts.probes.software.history import HISTORY
from gpuprov.spec.model import RawHost, is_secret


class Captured(msgspec.Struct, frozen=True):
    """The files by name; hosts that could not be read, with the error; the number of replaced secrets."""

    files: dict[str, str]
    unreachable: tuple[str, ...] = ()
    masked: int = 0
    # The names of these hosts.
    again: tuple[str, ...] = ()


# Contents of a host's page (`gpuprov show --html`) beside results of checks.
OF_THE_PAGE: tuple[Probe[Any], ...] = (IDENTITY, CHECKPOINTS, MARKER, READINGS, HISTORY)


def probes() -> tuple[Probe[Any], ...]:
    """Return every probe of every check, so that a capture can be checked against any spec, and those of a host's
    page."""
    checks = [check for capability in (HOUSE, *CAPABILITIES) for check in capability.checks]
    return without_spec((*(probe for check in checks for probe in check.probes), *OF_THE_PAGE), BY_NAME)


def capture(hosts: Sequence[RawHost], timeout: float, pace: Pace | None = None) -> Captured:
    """Read every host once. `timeout`: seconds for one host."""
    requested = probes()
    gathered = gather([(raw, requested) for raw in hosts], timeout=timeout, pace=pace)
    files: dict[str, str] = {}
    unreachable = []
    again = []
    masked = 0
    for raw in hosts:
        facts = gathered[raw.name]
        if isinstance(facts, UnreachableError):
            unreachable.append(str(facts))
            again.append(raw.name)
            continue
        secrets = [str(value) for key, value in raw.connection.items() if value and is_secret(key)]
        made = captured.made(raw.name, facts, __version__, secrets)
        files[captured.file_name(raw.name)] = captured.text(made)
        masked += made.masked
    return Captured(files, tuple(unreachable), masked, tuple(again))
