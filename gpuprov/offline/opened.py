"""A bundle as it lies here: read only once its signature holds, and believed only when every file is what the manifest says."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuprov import reading
from gpuprov.errors import GpuprovError, UnreachableError
from gpuprov.gather.gather import gather
from gpuprov.gather.pace import Pace
from gpuprov.offline.model import FORMAT, KEYS, MANIFEST, File, Manifest, Repository
from gpuprov.offline.specs import identifier
from gpuprov.offline.wanted import Pair, kind
from gpuprov.onhost import repository_key
from gpuprov.onhost.files import digest
from gpuprov.onhost.pull import signed
from gpuprov.onhost.pull.refused import Refused
from gpuprov.probe.base import Facts, ProbeFailed
from gpuprov.probe.host import system
from gpuprov.probe.kernel import modules
from gpuprov.shown import counted

AGAIN = "carry the whole folder over again, or make it again: gpuprov bundle INVENTORY --key KEY --out DIR; nothing was changed"
TRUST = (
    "--signers names a file of your own with the line of the key, which gpuprov bundle wrote beside the folder: bring it once, "
    "another way than the bundle"
)
MOST = 64 << 20
"""Bytes of a manifest."""


def opened(folder: Path, signers: Path, now: float | None = None) -> Manifest:
    """What the bundle is, if one of the signers made it, it is whole, and its time has not come. Raises GpuprovError."""
    place = folder / MANIFEST
    if signers.resolve().is_relative_to(folder.resolve()):
        raise GpuprovError(f"{signers} lies in the bundle, and proves nothing of it", TRUST)
    try:
        if place.stat().st_size > MOST:
            raise GpuprovError(f"{place} is larger than {MOST >> 20} MiB", AGAIN)
        data = signed.archive(place.read_bytes(), str(signers))
    except Refused as error:
        raise GpuprovError(f"{folder}: {error.message}", f"{TRUST}; {AGAIN}") from error
    except OSError as error:
        raise GpuprovError(f"{folder} is no bundle: {place}: {error.strerror}", AGAIN) from error
    manifest = read(data, folder)
    if manifest.gpuprov_bundle != FORMAT:
        raise GpuprovError(
            f"{folder} has format {manifest.gpuprov_bundle}, this gpuprov reads {FORMAT}",
            f"use gpuprov {manifest.gpuprov_version}, or make the bundle again",
        )
    told = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if now is None else now))
    if told >= manifest.expires_at:
        raise GpuprovError(f"{folder} expired at {manifest.expires_at}; it is {told}", f"correct the clock, or {AGAIN}")
    _whole(folder, manifest)
    return manifest


def files(folder: Path) -> dict[str, File]:
    """Every file of a bundle that its manifest answers for."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not path.is_file():
            raise GpuprovError(f"{path} is no plain file", "make the bundle again")
        if name != MANIFEST:
            found[name] = File(sha256=digest(str(path)), size=path.stat().st_size)
    return found


def read(data: bytes, folder: Path) -> Manifest:
    """What was signed, as a manifest. Raises GpuprovError."""
    try:
        return msgspec.convert(reading.json(data.decode(), MOST), Manifest)
    except (reading.Unreadable, msgspec.ValidationError, ValueError) as error:
        raise GpuprovError(
            f"{folder} is signed, and no bundle of packages: {error}", "a bundle of --pull is for hosts that pull"
        ) from error


def _whole(folder: Path, manifest: Manifest) -> None:
    try:
        found = files(folder)
    except OSError as error:
        raise GpuprovError(f"{folder} cannot be read: {error}", AGAIN) from error
    for what, names in (
        ("is missing", manifest.files.keys() - found.keys()),
        ("is not of the bundle", found.keys() - manifest.files.keys()),
        ("is not what was signed", {name for name in found if manifest.files.get(name, found[name]) != found[name]}),
    ):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise GpuprovError(f"{folder}: {min(names)} {what}{more}", AGAIN)


def keep_keys(folder: Path, manifest: Manifest) -> None:
    """Have the bundle's keys of package sources where this machine keeps those that it has fetched. Roles judge them anyway."""
    for url in manifest.keys:
        place = Path(repository_key.cached(url, os.environ))
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(folder / KEYS / place.name, place)


def made_for(manifest: Manifest, pairs: Sequence[Pair]) -> None:
    """Raise GpuprovError where a host has another spec than those that the bundle was made for."""
    foreign = [raw.name for raw, _ in pairs if identifier(raw) not in manifest.specs]
    if foreign:
        raise GpuprovError(
            f"{foreign[0]}: the bundle was made for other specs than this host's ({counted(len(foreign), 'host')})",
            "make it from this inventory, or limit the run: --limit; nothing was changed",
        )


def matching(
    manifest: Manifest, pairs: Sequence[Pair], forks: int = 0
) -> tuple[dict[str, Repository], dict[str, GpuprovError]]:
    """The repository of each host, and why a host has none: it does not answer, or has another release, architecture or kernel. Raises
    GpuprovError where one has another spec."""
    made_for(manifest, pairs)
    probes = (system.OS_RELEASE, system.PLATFORM, modules.KERNELS)
    found = gather([(raw, probes) for raw, _ in pairs], pace=Pace(forks))
    answers: dict[str, Repository] = {}
    refused: dict[str, GpuprovError] = {}
    for name, facts in found.items():
        if isinstance(facts, UnreachableError):
            refused[name] = facts  # if it is back for the run, it has no packages
            continue
        try:
            answers[name] = of(manifest, name, kind(facts), _kernels(facts.get(system.PLATFORM).kernel, facts))
        except ProbeFailed as error:
            refused[name] = GpuprovError(f"{name}: {error}", error.hint)
        except GpuprovError as error:
            refused[name] = error
    return answers, refused


def _kernels(running: str, facts: Facts) -> frozenset[str]:
    """The running kernel; in a container, whose machine runs another, those that are installed."""
    there = frozenset(kernel.release for kernel in facts.get(modules.KERNELS))
    return frozenset((running,)) if running in there else there


def of(manifest: Manifest, name: str, there: tuple[str, str, str], kernels: frozenset[str]) -> Repository:
    """The packages for a host of this release and architecture (`there`) with these kernels. Raises GpuprovError."""
    for one in manifest.repositories:
        if (one.distribution, one.release, one.architecture) == there:
            if one.kernels and not kernels & set(one.kernels):
                raise GpuprovError(
                    f"{name} has kernel {', '.join(sorted(kernels)) or 'none'}; the bundle has headers for {', '.join(one.kernels)}",
                    "make it again on a host with this kernel; nothing was changed",
                )
            return one
    had = ", ".join(f"{one.distribution} {one.release} {one.architecture}" for one in manifest.repositories)
    raise GpuprovError(
        f"{name} is {' '.join(there)}; the bundle is for {had}", "make it again with such a host; nothing was changed"
    )
