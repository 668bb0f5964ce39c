"""Opening of a bundle: it is read only after its signature is verified, and accepted only if every file matches the
manifest."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuprov.bundle.model import FORMAT, KEYS, MANIFEST, File, Manifest, Repository
from gpuprov.bundle.needs import Pair, kind
from gpuprov.bundle.specs import identifier
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.core.sanitize import counted
from gpuprov.facts.collect.gather import gather
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.kernel import modules
from gpuprov.host_code import repository_key
from gpuprov.host_code.files import compute_digest
from gpuprov.host_code.pull import signed
from gpuprov.host_code.pull.refused import Refused

AGAIN = (
    "carry the whole folder over again, or make it again: gpuprov bundle INVENTORY --key KEY --out DIR; nothing "
    "was changed"
)
TRUST = (
    "--signers names a file of your own with the line of the key, which gpuprov bundle wrote beside the folder: "
    "bring it once, another way than the bundle"
)
# Bytes of a manifest.
MOST = 64 << 20


def opened(folder: Path, signers: Path, now: float | None = None) -> Manifest:
    """Read the manifest, if one of the signers made the bundle, it is whole, and it has not expired. Raises
    GpuprovError."""
    place = folder / MANIFEST
    if signers.resolve().is_relative_to(folder.resolve()):
        raise GpuprovError(f"{signers} lies in the bundle, and proves nothing about it", TRUST)
    try:
        if place.stat().st_size > MOST:
            raise GpuprovError(f"{place} is larger than {MOST >> 20} MiB", AGAIN)
        data = signed.verify_archive(place.read_bytes(), str(signers))
    except Refused as error:
        raise GpuprovError(f"{folder}: {error.message}", f"{TRUST}; {AGAIN}") from error
    except OSError as error:
        raise GpuprovError(f"{folder} is not a bundle: {place}: {error.strerror}", AGAIN) from error
    manifest = read(data, folder)
    if manifest.gpuprov_bundle != FORMAT:
        raise GpuprovError(
            f"{folder} has format {manifest.gpuprov_bundle}, this gpuprov reads {FORMAT}",
            f"use gpuprov {manifest.gpuprov_version}, or make the bundle again",
        )
    now_text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if now is None else now))
    if now_text >= manifest.expires_at:
        raise GpuprovError(
            f"{folder} expired at {manifest.expires_at}; it is {now_text}", f"correct the clock, or {AGAIN}"
        )
    _check_files(folder, manifest)
    return manifest


def list_files(folder: Path) -> dict[str, File]:
    """List every file of a bundle that its manifest answers for."""
    listed = {}
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not path.is_file():
            raise GpuprovError(f"{path} is not a plain file", "make the bundle again")
        if name != MANIFEST:
            listed[name] = File(sha256=compute_digest(str(path)), size=path.stat().st_size)
    return listed


def read(data: bytes, folder: Path) -> Manifest:
    """Parse the signed data as a manifest. Raises GpuprovError."""
    try:
        return msgspec.convert(safe_parse.parse_json(data.decode(), MOST), Manifest)
    except (safe_parse.Unreadable, msgspec.ValidationError, ValueError) as error:
        raise GpuprovError(
            f"{folder} is signed, and no bundle of packages: {error}", "a bundle of --pull is for hosts that pull"
        ) from error


def _check_files(folder: Path, manifest: Manifest) -> None:
    try:
        present = list_files(folder)
    except OSError as error:
        raise GpuprovError(f"{folder} cannot be read: {error}", AGAIN) from error
    for what, names in (
        ("is missing", manifest.files.keys() - present.keys()),
        ("is not of the bundle", present.keys() - manifest.files.keys()),
        (
            "is not what was signed",
            {name for name in present if manifest.files.get(name, present[name]) != present[name]},
        ),
    ):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise GpuprovError(f"{folder}: {min(names)} {what}{more}", AGAIN)


def keep_keys(folder: Path, manifest: Manifest) -> None:
    """Copy the bundle's keys of package sources to this machine's cache of fetched keys. Roles check them anyway."""
    for url in manifest.keys:
        place = Path(repository_key.find_cached(url, os.environ))
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(folder / KEYS / place.name, place)


def made_for(manifest: Manifest, pairs: Sequence[Pair]) -> None:
    """Raise GpuprovError if a host has another spec than those that the bundle was made for."""
    foreign = [raw.name for raw, _ in pairs if identifier(raw) not in manifest.specs]
    if foreign:
        raise GpuprovError(
            f"{foreign[0]}: the bundle was made for other specs than this host's ({counted(len(foreign), 'host')})",
            "make it from this inventory, or limit the run: --limit; nothing was changed",
        )


def matching(
    manifest: Manifest, pairs: Sequence[Pair], forks: int = 0
) -> tuple[dict[str, Repository], dict[str, GpuprovError]]:
    """Match each host to its repository, or explain why it has none: it does not answer, or has another release,
    architecture or kernel. Raises GpuprovError if a host has another spec."""
    made_for(manifest, pairs)
    probes = (system.OS_RELEASE, system.PLATFORM, modules.KERNELS)
    gathered = gather([(raw, probes) for raw, _ in pairs], pace=Pace(forks))
    answers: dict[str, Repository] = {}
    refused: dict[str, GpuprovError] = {}
    for name, facts in gathered.items():
        if isinstance(facts, UnreachableError):
            refused[name] = facts  # if it is back for the run, it has no packages
            continue
        try:
            answers[name] = of(manifest, name, kind(facts), _find_kernels(facts.get(system.PLATFORM).kernel, facts))
        except ProbeFailed as error:
            refused[name] = GpuprovError(f"{name}: {error}", error.fix)
        except GpuprovError as error:
            refused[name] = error
    return answers, refused


def _find_kernels(running: str, facts: Facts) -> frozenset[str]:
    """Return the running kernel; in a container, whose machine runs another, the installed ones."""
    installed = frozenset(kernel.release for kernel in facts.get(modules.KERNELS))
    return frozenset((running,)) if running in installed else installed


def of(manifest: Manifest, name: str, host_kind: tuple[str, str, str], kernels: frozenset[str]) -> Repository:
    """The packages for a host of this release and architecture (`there`) with these kernels. Raises GpuprovError."""
    for repository in manifest.repositories:
        if (repository.distribution, repository.release, repository.architecture) == host_kind:
            if repository.kernels and not kernels & set(repository.kernels):
                raise GpuprovError(
                    f"{name} has kernel {', '.join(sorted(kernels)) or 'none'}; "
                    f"the bundle has headers for {', '.join(repository.kernels)}",
                    "make it again on a host with this kernel; nothing was changed",
                )
            return repository
    had = ", ".join(
        f"{repository.distribution} {repository.release} {repository.architecture}"
        for repository in manifest.repositories
    )
    raise GpuprovError(
        f"{name} is {' '.join(host_kind)}; the bundle is for {had}",
        "make it again with such a host; nothing was changed",
    )
