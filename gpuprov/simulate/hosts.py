"""Common interface of both kinds of simulated host. A host with GPUs is a Debian host with the parts added."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import container, faults, machine
from gpuprov.simulate.description import Description, check
from gpuprov.simulate.devices import devices, table
from gpuprov.simulate.host import Listed, SimulatedHost
from gpuprov.simulate.parts import (
    boot,
    cgpu,
    containerd,
    efa,
    engines,
    erdma,
    fabric,
    identity,
    kernel,
    kernel_log,
    nvml,
    ofed,
    packages,
    silicon,
)
from gpuprov.simulate.parts.base import CONFIGURATION, FAULTS, STATE, File, Part, text

KINDS: dict[str, ModuleType] = {"container": container, "machine": machine}
# Marker written last: without it, creation of the host was interrupted.
WHOLE = f"{STATE}/whole"
# Parts that a host without GPUs gets, too.
PLAIN: tuple[Callable[[str, Description], Part], ...] = (boot.part, kernel.part, containerd.part, engines.part)
PARTS: tuple[Callable[[str, Description], Part], ...] = (
    silicon.part,
    kernel.part,
    kernel_log.part,
    nvml.part,
    packages.part,
    identity.part,
    boot.part,  # its menu has the kernel that the distribution's name brought
    fabric.part,
    cgpu.part,
    erdma.part,
    efa.part,
    ofed.part,
    containerd.part,
    engines.part,
)


def up(name: str, description: Description, *, tag: str | None = None) -> SimulatedHost:
    """Start a simulated host with its GPUs, packages and faults, and wait until it answers ssh. Returns a running host
    unchanged.

    `tag`: saved by `freeze`. If anything fails, a newly created host is removed again.
    """
    kind = KINDS[description.kind]
    faults.check(description)
    fresh = kind.describe(name) is None
    check(description)
    volumes = packages.volumes(description) if _whole(description) else ()
    host: SimulatedHost = kind.up(name, description, tag=tag, volumes=volumes)
    if not fresh and "whole" in run(name, f"test ! -e {WHOLE} || echo whole"):
        return host
    try:
        if tag is None:
            furnish(name, description)
        for fault in description.faults:
            faults.plant(name, fault, run)
        run(name, f"mkdir -p {STATE}; touch {WHOLE}")
    except BaseException:
        kind.down(name)
        raise
    return host


def furnish(name: str, description: Description) -> None:
    """Put all parts on a host; idempotent."""
    made = [part(name, description) for part in (PARTS if _whole(description) else PLAIN)]
    files = {f"{CONFIGURATION}/devices": text(table(devices(name, description)))}
    for part in made:
        files |= part.files
    _kind(name).write(name, archive(files))
    script = [f"install -d {STATE} {FAULTS}", "systemctl daemon-reload"]
    for part in made:
        script.append(part.script)
        script += [f"systemctl enable --now {unit} 2>&1" for unit in part.units]
    run(name, "\n".join(script))


def _whole(description: Description) -> bool:
    """True if it needs more than a plain Debian host has: GPUs, or to present another distribution."""
    return description.gpu is not None or description.known.stands_in


def down(name: str) -> bool:
    """Remove a host; return False if no host has this name."""
    return any(kind.down(name) for kind in KINDS.values())


def reboot(name: str) -> None:
    """Reboot a host from outside, and wait until it is up again."""
    _kind(name).reboot(name)


def run(name: str, script: str) -> str:
    """Run a shell script as root and return its standard output."""
    return str(_kind(name).run(name, script))


def logs(name: str) -> str:
    """Return the end of a host's journal, and of its console if it has one."""
    return str(_kind(name).logs(name))


def describe(name: str) -> Description:
    """Return the description that a host was made from. Raises GpuprovError if no host has this name."""
    for kind in KINDS.values():
        if (described := kind.describe(name)) is not None:
            return described if isinstance(described, Description) else Description()
    raise GpuprovError(f'no simulated host is named "{name}"', fix="gpuprov simulate list")


def listing() -> list[Listed]:
    """List all hosts of both kinds."""
    return sorted((row for kind in KINDS.values() for row in kind.listing()), key=lambda row: row.name)


def _kind(name: str) -> ModuleType:
    return KINDS[describe(name).kind]


def archive(files: dict[str, File]) -> bytes:
    """Return a tar archive of files by absolute path, owned by root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in _folders(files):
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, file in sorted(files.items()):
            content = file.content.read_bytes() if isinstance(file.content, Path) else file.content
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content), file.mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _folders(files: Iterable[str]) -> list[str]:
    # Only ours are made: the others are there, some as links (/lib), and keep their owners and modes.
    folders = {str(parent) for path in files for parent in Path(path).parents if "gpuprov-sim" in str(parent)}
    return sorted(folders)
