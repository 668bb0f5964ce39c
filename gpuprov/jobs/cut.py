"""Cuts a frozen fleet into jobs: by number, and so that no job has hosts of two domains."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.core.fill import fill
from gpuprov.core.sanitize import counted
from gpuprov.jobs import stored
from gpuprov.jobs.model import Fleet, Host, Job, digest_of

SIZE = 50
OPTION = "--by"
NAME = "job-{:04d}.json"


def cut(fleet: Fleet, size: int = SIZE, by: str = "") -> list[Job]:
    """Return the jobs, of at most `size` hosts, in the order of the fleet: domain after domain, in order of first
    appearance."""
    of_domain: dict[str, list[Host]] = {}
    for host, domain in zip(fleet.hosts, domains(fleet, by), strict=True):
        of_domain.setdefault(domain, []).append(host)
    parts = [
        (domain, hosts[start : start + size])
        for domain, hosts in of_domain.items()
        for start in range(0, len(hosts), size)
    ]
    return [
        _make_job(fleet, number, len(parts), by, domain, part) for number, (domain, part) in enumerate(parts, start=1)
    ]


def _make_job(fleet: Fleet, number: int, of: int, by: str, domain: str, hosts: Sequence[Host]) -> Job:
    specs = {name: fleet.specs[name] for name in sorted({host.spec for host in hosts})}
    part = {"number": number, "of": of, "by": by, "domain": domain, "specs": specs, "hosts": tuple(hosts)}
    made = fill(Job, fleet, fleet=fleet.digest, digest="", **part)
    return msgspec.structs.replace(made, digest=digest_of(made))


def domains(fleet: Fleet, by: str, option: str = OPTION) -> list[str]:
    """Return the domain of each host: its group within group `by`, or the value of its variable `by`. Empty: `by` is
    empty, or the host has none.

    asked: the option, or the policy's key, that names it. Raises GpuprovError if no group or variable has this name, or
    if a host is in two groups of it.
    """
    if not by:
        return [""] * len(fleet.hosts)
    if any(by in host.domains for host in fleet.hosts):
        return [host.domains.get(by, "") for host in fleet.hosts]
    if by not in fleet.groups:
        more = "; gpuprov fleet freeze --domain NAME keeps another variable" if option == OPTION else ""
        message = f'{option}: no group with groups in it, and no variable of a host, is called "{by}"'
        raise GpuprovError(message, _format_allowed(fleet) + more)
    return [_format_group(host, by, fleet.groups, option) for host in fleet.hosts]


def _format_group(host: Host, by: str, groups: Mapping[str, Sequence[str]], option: str) -> str:
    matching = [group for group in groups[by] if group in host.groups]
    if len(matching) > 1:
        message = f"{option} {by}: {host.name} is in two groups of it: {matching[0]} and {matching[1]}"
        raise GpuprovError(message, "take it out of one, or name another group or variable")
    return matching[0] if matching else ""


def _format_allowed(fleet: Fleet) -> str:
    variables = sorted({name for host in fleet.hosts for name in host.domains})
    known = ", ".join([*variables, *sorted(fleet.groups)]) or "nothing in this fleet"
    return f"allowed: {known}"


def save(jobs: Sequence[Job], folder: Path) -> list[Path]:
    """Write them. Jobs of an earlier slicing that are not among them are removed, so that nobody works on them."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = {path for path in folder.iterdir() if _is_name(path.name)}
    except OSError as error:
        raise GpuprovError(f"{folder} cannot be made: {error.strerror}", "name another folder with --out") from error
    paths = [folder / NAME.format(job.number) for job in jobs]
    for path in sorted(old - {*paths}):
        path.unlink()
    for job, path in zip(jobs, paths, strict=True):
        stored.save(job, path)
    return paths


def _is_name(name: str) -> bool:
    number = name.removeprefix("job-").removesuffix(".json")
    return safe_parse.is_whole(number) and name == NAME.format(int(number))


def describe_jobs(jobs: Sequence[Job]) -> Iterator[str]:
    """Describe each job in a line."""
    for job in jobs:
        domain = f", {job.by} {job.domain or '(in none)'}" if job.by else ""
        yield f"{NAME.format(job.number)}: {counted(len(job.hosts), 'host')}{domain}"
