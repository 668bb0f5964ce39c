"""Fleets and jobs as files: written whole, read with limits, refused if from another version or user, or altered."""

from pathlib import Path
from typing import TypeVar

import msgspec

from gpuprov import __version__
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.jobs.model import FLEET_FORMAT, JOB_FORMAT, Fleet, Job, digest_of
from gpuprov.report.files import write_atomic

# Maximum size in bytes: a fleet of 100,000 hosts with a spec each, and some margin.
LARGEST = 512 << 20
T = TypeVar("T", Fleet, Job)
AGAIN = {
    Fleet: "freeze the inventory again: gpuprov fleet freeze INVENTORY --out FILE",
    Job: "slice the fleet again: gpuprov fleet slice FILE --out DIR",
}


class OtherVersion(GpuprovError):
    """A file of another version of gpuprov."""


class FleetHead(msgspec.Struct, frozen=True, rename={"format": "gpuprov_fleet"}):
    """Header, read before the rest, whose format may differ in another version."""

    format: int
    gpuprov_version: str


class JobHead(msgspec.Struct, frozen=True, rename={"format": "gpuprov_job"}):
    """The same for a job."""

    format: int
    gpuprov_version: str


def load_fleet(path: Path) -> Fleet:
    """Load a frozen fleet of this gpuprov. Raises GpuprovError if it cannot be read, or was altered after freezing."""
    return _load(path, Fleet, FleetHead, "a frozen fleet", FLEET_FORMAT)


def load_job(path: Path) -> Job:
    """Load a job of this gpuprov. Raises GpuprovError if it cannot be read, or was altered after slicing."""
    return _load(path, Job, JobHead, "a job", JOB_FORMAT)


def _load(path: Path, kind: type[T], head: type[FleetHead] | type[JobHead], what: str, known: int) -> T:
    again = AGAIN[kind]
    try:
        data = safe_parse.read_own_contents(str(path), LARGEST)
        first = safe_parse.parse_typed_json(data, head, largest=LARGEST)
        if first.format != known or first.gpuprov_version != __version__:
            whose = f"gpuprov {first.gpuprov_version}, format {first.format}"
            raise OtherVersion(f"{path} is {what} of {whose}; this is {__version__}, format {known}", again)
        document = safe_parse.parse_typed_json(data, kind, largest=LARGEST)
    except OSError as error:
        raise GpuprovError(f"{path} cannot be read: {error.strerror}", f"name a file; {again}") from error
    except safe_parse.NotOwn as error:
        message = f"{path} belongs to another user, or others may write it: it says what is run on the hosts"
        raise GpuprovError(message, f"chmod go-w FILE; or {again}") from error
    except safe_parse.Unreadable as error:
        raise GpuprovError(f"{path} is not {what} that gpuprov wrote: {error}", again) from error
    if digest_of(document) != document.digest:
        raise GpuprovError(f"{path} was changed since gpuprov wrote it: its digest does not fit", again)
    names = [host.name for host in document.hosts]
    if unknown := sorted({host.spec for host in document.hosts} - document.specs.keys()):
        raise GpuprovError(f"{path} has no spec {unknown[0]}, which a host names", again)
    if len(set(names)) < len(names) or not names:
        raise GpuprovError(f"{path} has {'a host twice' if names else 'no host'}", again)
    return document


def save(value: Fleet | Job, path: Path) -> None:
    """Write it, readable by this user alone. The head is one line, as is each spec and each host."""
    write_atomic(path, text(value), mode=0o600)


def text(value: Fleet | Job) -> str:
    """Return the file's text."""
    plain = msgspec.to_builtins(value)
    specs, hosts = plain.pop("specs"), plain.pop("hosts")
    head = _format_line(plain)[:-1]
    lines = ",\n".join(f"{_format_line(name)}:{_format_line(spec)}" for name, spec in specs.items())
    return f'{head},\n"specs":{{\n{lines}\n}},\n"hosts":[\n' + ",\n".join(map(_format_line, hosts)) + "\n]}\n"


def _format_line(value: object) -> str:
    return msgspec.json.encode(value).decode()
