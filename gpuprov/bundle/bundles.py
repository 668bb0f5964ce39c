"""Making of a bundle: what each host's package manager resolves, in a signed repository per release, under a signed
manifest."""

import base64
import errno
import hashlib
import json
import os
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from gpuprov.bundle import licences, opened, repository, resolve
from gpuprov.bundle.bom import build_bom
from gpuprov.bundle.model import BOM, FILES, KEY, KEYS, MANIFEST, SIGNERS, Manifest, Named, Repository
from gpuprov.bundle.needs import HostNeeds, Key, read_needs, refuse_unsupported
from gpuprov.bundle.opened import list_files
from gpuprov.bundle.specs import identifier
from gpuprov.core.errors import GpuprovError
from gpuprov.core.fill import fill
from gpuprov.fleet.specs import Fleet
from gpuprov.host_code import fetched, repository_key
from gpuprov.host_code.packages.model import Refused
from gpuprov.host_code.sources import Source
from gpuprov.pull import signing
from gpuprov.report.files import write_atomic

# Largest size, in bytes, of a file that a spec names.
MOST = 1 << 33
SECONDS = 60


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options."""

    out: Path
    key: Path
    # Until the bundle expires.
    days: float = 30.0
    # Classes of licences that the site says it may copy.
    accepted: tuple[str, ...] = ()
    forks: int = 0


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the run."""

    manifest: Manifest
    # Classes in it that are no free software.
    licences: tuple[str, ...]
    # Number of files from the previous bundle.
    kept: int = 0


def make(fleet: Fleet, options: Options, now: float) -> Made:
    """Write the bundle, whole or not at all; an existing one is replaced, and its files are not fetched again.

    Raises GpuprovError.
    """
    signers = signing.format_allowed_signers(options.key)
    signing.sign(options.key, b"")
    old = _open_previous(options.out, signers)
    refuse_unsupported(fleet.pairs)
    needs = read_needs(fleet.pairs, options.forks)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{options.out.name}.", dir=options.out.parent) as place:
            folder = Path(place) / "bundle"
            folder.mkdir()
            made = _write_bundle(fleet, needs, folder, old, options, now)
            data = msgspec.json.encode(made.manifest)
            (folder / MANIFEST).write_bytes(signing.sign(options.key, data) + data)
            os.sync()  # a power cut after the rename must not leave files without their content
            write_atomic(options.out.with_name(options.out.name + SIGNERS), signers)
            if options.out.is_dir():
                os.rename(options.out, Path(place) / "before")
            os.rename(folder, options.out)
    except OSError as error:
        raise GpuprovError(
            f"{options.out} cannot be written: {error}; nothing of it is left",
            "make room, or name another folder with --out",
        ) from error
    return made


def _open_previous(out: Path, signers: str) -> Manifest | None:
    """Open an older bundle of the same key. Another folder is not touched."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    with tempfile.TemporaryDirectory(prefix="gpuprov-bundle-") as scratch:
        line = Path(scratch) / "allowed_signers"
        line.write_text(signers, encoding="utf-8")
        try:
            return opened.opened(out, line, now=0)
        except GpuprovError as error:
            raise GpuprovError(
                f"{out} is there, and no whole bundle of this key: {error.message}", "name another folder with --out"
            ) from error


def _write_bundle(
    fleet: Fleet, needs: Mapping[str, HostNeeds], folder: Path, old: Manifest | None, options: Options, now: float
) -> Made:
    until = now + options.days * 86_400
    kinds = _fetch_packages(fleet, needs, folder, old, options)
    with repository.make_signer() as key:
        for name, hosts in kinds.items():
            repository.write_index(folder / name, hosts[0], until, now, key)
        (folder / KEY).write_text(key.public(), encoding="utf-8")
        fingerprint = key.fingerprint
    built = tuple(_describe_repository(folder, hosts) for hosts in kinds.values())
    used = licences.judge(((p.name, p.section) for each in built for p in each.packages), options.accepted)
    downloads = tuple(sorted({each for need in needs.values() for each in need.downloads}))
    for each in {each.sha256: each for each in downloads}.values():
        _download(each, folder / FILES / each.sha256, options.out / FILES / each.sha256)
    keys = sorted({key for need in needs.values() for key in need.keys})
    _fetch_keys(keys, folder / KEYS)
    (folder / BOM).write_text(
        json.dumps(build_bom(built, downloads, _format_time(now)), indent=1) + "\n", encoding="utf-8"
    )
    manifest = Manifest(
        made_at=_format_time(now),
        expires_at=_format_time(until),
        key=fingerprint,
        specs=tuple(sorted({identifier(raw) for raw, _ in fleet.pairs})),
        repositories=built,
        accepted=tuple(name for name in used if name in options.accepted),
        downloads=downloads,
        keys=tuple(source_key.url for source_key in keys),
        files=list_files(folder),
    )
    kept = sum(1 for name, file in manifest.files.items() if old and old.files.get(name) == file)
    return Made(manifest=manifest, licences=tuple(used), kept=kept)


def _fetch_packages(
    fleet: Fleet, needs: Mapping[str, HostNeeds], folder: Path, old: Manifest | None, options: Options
) -> dict[str, list[HostNeeds]]:
    """Fetch each host's packages, or take them from the previous bundle; return the needs by folder."""
    kinds: dict[str, list[HostNeeds]] = {}
    previous = {before.folder: before.packages for before in old.repositories} if old else {}
    for raw, _ in fleet.pairs:
        need = needs[raw.name]
        place = folder / need.folder
        place.mkdir(exist_ok=True)
        kinds.setdefault(need.folder, []).append(need)
        if need.packages:
            before = options.out / need.folder if need.folder in previous else None
            known = {each.file: each.sha256 for each in previous.get(need.folder, ())}
            resolve.fetch_packages(raw, need, place, before, known)
    return kinds


def _describe_repository(folder: Path, hosts: list[HostNeeds]) -> Repository:
    kernels = tuple(sorted({kernel for host in hosts for kernel in host.kernels}))
    packages = repository.list_packages(folder / hosts[0].folder, hosts[0].family)
    return fill(Repository, hosts[0], kernels=kernels, packages=packages)


def _download(source: Named, target: Path, before: Path) -> None:
    """Fetch the file at the address, or link that of the previous bundle, which is known to be whole."""
    target.parent.mkdir(exist_ok=True)
    if before.exists():
        resolve.link(before, target)
        return
    try:
        request = fetched.Wanted(str(target), source.sha256, MOST, 0o644)
        fetched.put_answer(request, lambda: urllib.request.urlopen(source.url, timeout=SECONDS))
    except (fetched.Refused, OSError, ValueError) as error:
        if getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise GpuprovError(
            f"{source.of}: {source.url} could not be fetched: {error}",
            "correct the url, its sha256, or https_proxy here",
        ) from error


def _fetch_keys(keys: Iterable[Key], folder: Path) -> None:
    """Fetch the keys of package sources that the specs name by their address, and check their fingerprints."""
    for key in keys:
        block: Source = {"of": "the bundle", "url": key.source, "key_url": key.url, "fingerprint": key.fingerprint}
        try:
            data, _ = repository_key.fetch_key(block, os.environ, repository_key.fetch_over_https)
        except Refused as error:
            raise GpuprovError(str(error)) from error
        folder.mkdir(exist_ok=True)
        (folder / hashlib.sha256(key.url.encode()).hexdigest()).write_bytes(base64.b64decode(data))


def _format_time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
