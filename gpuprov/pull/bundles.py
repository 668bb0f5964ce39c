"""A bundle for each host of an inventory: its job, cut down to what the host itself needs, under a signed manifest."""

import io
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gpuprov.catalog.drivers.sets import list_gpu_services
from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import counted
from gpuprov.fleet.specs import Fleet
from gpuprov.host_code.pull import bundle as onhost
from gpuprov.host_code.pull.config import PLACES, find_misplacement
from gpuprov.host_code.pull.identity import DECLARED, FILES
from gpuprov.jobs import cut, frozen, stored
from gpuprov.jobs.model import Host, Job, digest_of, spec_id
from gpuprov.jobs.results import END, file_name
from gpuprov.pull import cloud_init, signing, wheels
from gpuprov.pull.files import put
from gpuprov.pull.model import Manifest, Mode, Wheel
from gpuprov.spec.model import RACK, SITE_VARIABLES, HostSpec, RawHost
from gpuprov.spec.repository import list_block_files
from gpuprov.spec.shown import show

# Variables of a host that hold its identity.
IDENTITY = {f"pull_{what}": what for what in (*FILES, DECLARED)}
# requires-python of pyproject.toml, compared by a test.
OLDEST_PYTHON = (3, 11)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of all bundles. `reboot`: whatever a spec says. `days`: until they expire. `serial` 0: the time."""

    out: Path
    key: Path
    wheels: Path
    source: str
    results: str = ""
    mode: Mode = "report"
    reboot: bool = False
    days: float = 30.0
    serial: int = 0


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the run."""

    hosts: int
    serial: int
    expires_at: str
    # Files that specs name and a host must have at the same place, by host.
    files: Mapping[str, Sequence[str]]


def make(fleet: Fleet, options: Options, now: float) -> Made:
    """Write bundles, wheels and user-data. Raises GpuprovError before anything is written, if something is missing."""
    for name in PLACES:
        if why := find_misplacement(name, getattr(options, name)):
            raise GpuprovError(f"--{name} {why}", "put the token or the password into a file of the hosts")
    known = {raw.name: read_identity(raw) for raw, _ in fleet.pairs}
    if nameless := [name for name, values in known.items() if not values]:
        fix = f"give it one of the variables {', '.join(IDENTITY)}: a name alone can be taken by another machine"
        raise GpuprovError(f"{nameless[0]}: the host has no identity ({counted(len(nameless), 'host')})", fix)
    wheel_list = wheels.read_wheels(options.wheels)
    signers = signing.format_allowed_signers(options.key)
    signing.sign(options.key, b"")
    fleet = msgspec.structs.replace(fleet, pairs=tuple((_remove_identity(raw), spec) for raw, spec in fleet.pairs))
    jobs = cut.cut(frozen.freeze(fleet), size=1)
    serial = options.serial or int(now)
    made_at, expires_at = (
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for at in (now, now + options.days * 86_400)
    )
    manifests = []
    for (raw, spec), job in zip(fleet.pairs, jobs, strict=True):
        local_job = make_local_job(job, spec)
        manifest = Manifest(
            host=raw.name,
            identity=known[raw.name],
            serial=serial,
            made_at=made_at,
            expires_at=expires_at,
            mode=options.mode,
            reboot=options.mode == "apply" and (options.reboot or spec.reboot == "if-needed"),
            services=tuple(list_gpu_services(raw.connection)),
            job=local_job.digest,
            fleet=local_job.fleet,
            python=OLDEST_PYTHON,
            wheels=tuple(wheel_list),
        )
        data = cloud_init.format_user_data(_make_config(manifest, options), signers)
        manifests.append((manifest, local_job, data))
    _write(manifests, wheel_list, signers, options)
    files = {raw.name: sorted(set(list_files(spec))) for raw, spec in fleet.pairs if any(list_files(spec))}
    return Made(hosts=len(manifests), serial=serial, expires_at=expires_at, files=files)


def read_identity(raw: RawHost) -> dict[str, str]:
    """Return the host's identity, as the inventory states it."""
    values = {}
    for variable, what in IDENTITY.items():
        value = raw.connection.get(variable, "")
        if not isinstance(value, str):
            raise GpuprovError(f"{raw.name}: {variable} is {show(value)}, which is not text", "quote it")
        if value.strip():
            values[what] = value.strip()
    return values


def _remove_identity(raw: RawHost) -> RawHost:
    """Remove the identity, so that the fleet's digest is the one that gpuprov fleet freeze writes."""
    return msgspec.structs.replace(
        raw, connection={name: value for name, value in raw.connection.items() if name not in IDENTITY}
    )


def make_local_job(job: Job, spec: HostSpec) -> Job:
    """Make the job that the host itself runs: over no connection, without secrets, and without a reboot inside of the
    run.

    The puller reboots after the run, if the bundle permits it.
    """
    (host,), (values,) = job.hosts, job.specs.values()
    plain = {name: value for name, value in values.items() if name != "reboot"}
    name = spec_id(plain)
    reached = {key: value for key, value in host.connection.items() if key in SITE_VARIABLES or key == RACK}
    local_host = Host(
        name=host.name,
        groups=host.groups,
        spec=name,
        connection={**reached, "ansible_connection": "local"},
        domains=host.domains,
    )
    named = set(list_files(spec))
    files = {path: digest for path, digest in job.files.items() if path in named}
    made = msgspec.structs.replace(job, hosts=(local_host,), specs={name: plain}, files=files, number=1, of=1)
    return msgspec.structs.replace(made, digest=digest_of(made))


def list_files(spec: HostSpec) -> Iterator[str]:
    """Yield the files that a spec names."""
    for fragment in spec.capabilities.values():
        yield from list_block_files(fragment)


def _make_config(manifest: Manifest, options: Options) -> dict[str, str]:
    config = {"name": manifest.host, "source": options.source, "results": options.results}
    config |= {"result": file_name(manifest.host), "declared": manifest.identity.get(DECLARED, "")}
    return {name: value for name, value in config.items() if value}


def _write(
    made: Sequence[tuple[Manifest, Job, str]], wheel_list: Sequence[Wheel], signers: str, options: Options
) -> None:
    """Write all files, wheels first: a host that sees a bundle finds what it names."""
    wheels.copy_wheels(wheel_list, options.wheels, options.out / "wheels")
    put(options.out / "allowed_signers", signers.encode())
    for manifest, job, data in made:
        stem = file_name(manifest.host).removesuffix(END)
        archive = pack(manifest, job)
        put(options.out / f"{stem}.bundle", signing.sign(options.key, archive) + archive)
        put(options.out / "cloud-init" / f"{stem}.yaml", data.encode(), mode=0o600)
        put(options.out / "cloud-init" / f"{stem}.yaml.gz", cloud_init.compress(data), mode=0o600)


def pack(manifest: Manifest, job: Job) -> bytes:
    """Pack the archive: manifest first, then the job."""
    files = {onhost.MANIFEST: msgspec.json.encode(manifest), onhost.JOB: stored.text(job).encode()}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()
