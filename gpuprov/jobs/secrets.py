"""The secrets that a job does not hold, taken from an inventory of the machine that works on it."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from gpuprov.core.errors import GpuprovError
from gpuprov.jobs.model import Host
from gpuprov.spec.model import RawHost

NAMED = 5


def given(hosts: Sequence[RawHost], job: Iterable[Host], known: Mapping[str, RawHost]) -> list[RawHost]:
    """Return the hosts with the secrets that the job names, if `known` hosts have them; nothing else of these is
    used."""
    completed = []
    for raw, host in zip(hosts, job, strict=True):
        connection = known[raw.name].connection if raw.name in known else {}
        taken = {name: connection[name] for name in host.secrets if connection.get(name) not in (None, "")}
        completed.append(replace(raw, connection={**raw.connection, **taken}) if taken else raw)
    return completed


def refuse_missing(hosts: Sequence[RawHost], job: Iterable[Host]) -> None:
    """Raise GpuprovError if a host lacks a secret that the inventory had."""
    missing: dict[str, list[str]] = {}
    for raw, host in zip(hosts, job, strict=True):
        for name in host.secrets:
            if raw.connection.get(name) in (None, ""):
                missing.setdefault(name, []).append(host.name)
    if missing:
        name, lacking = next(iter(missing.items()))
        more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
        also = f" (as are {', '.join([*missing][1:])})" if len(missing) > 1 else ""
        raise GpuprovError(
            f"{name} is not in the job{also}: it is a secret of {', '.join(lacking[:NAMED])}{more}",
            "--secrets INVENTORY takes it from an inventory here, with its vault; -e @FILE has it; -K asks for the "
            "password of sudo; --without-secrets, where keys or an agent are enough",
        )


def refuse_others(hosts: Iterable[RawHost], frozen: Iterable[Host], known: Mapping[str, RawHost]) -> None:
    """Raise GpuprovError if a host's secret differs from these inventories, the only source from which it is read
    again."""
    for raw, host in zip(hosts, frozen, strict=True):
        connection = known[raw.name].connection if raw.name in known else {}
        for name in host.secrets:
            if connection.get(name) != raw.connection[name]:
                raise GpuprovError(
                    f"{name} of {host.name} is of -e: the processes of a roll-out read secrets from the inventory "
                    "again",
                    "say it in the inventory, in a vault; or in a second inventory: -i INVENTORY -i FILE",
                )
