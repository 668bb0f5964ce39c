"""Make a bundle: what each host's package manager resolves, in a signed repository for each release, under a signed manifest."""

from __future__ import annotations

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

from gpuprov.errors import GpuprovError
from gpuprov.fleet import Fleet
from gpuprov.offline import licences, opened, repository, resolve
from gpuprov.offline import wanted as asking
from gpuprov.offline.bom import bom
from gpuprov.offline.model import BOM, FILES, KEY, KEYS, MANIFEST, SIGNERS, Manifest, Named, Repository
from gpuprov.offline.opened import files
from gpuprov.offline.specs import identifier
from gpuprov.onhost import fetched, repository_key
from gpuprov.onhost.packages.model import Refused
from gpuprov.pull import signing
from gpuprov.report.files import write_atomic

MOST = 1 << 33
"""Bytes of a file that a spec names."""
SECONDS = 60


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`accepted`: classes of licences that the site says it may copy. `days`: until the bundle expires."""

    out: Path
    key: Path
    days: float = 30.0
    accepted: tuple[str, ...] = ()
    forks: int = 0


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What was written; `licences`: classes in it that are no free software. `kept`: files of the bundle before it."""

    manifest: Manifest
    licences: tuple[str, ...]
    kept: int = 0


def make(fleet: Fleet, options: Options, now: float) -> Made:
    """Write the bundle, whole or not at all; one that is there already is replaced, and what it has is not fetched again.

    Raises GpuprovError.
    """
    signers = signing.format_allowed_signers(options.key)
    signing.sign(options.key, b"")
    old = _before(options.out, signers)
    asking.refuse_unsupported(fleet.pairs)
    asked = asking.read(fleet.pairs, options.forks)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{options.out.name}.", dir=options.out.parent) as place:
            folder = Path(place) / "bundle"
            folder.mkdir()
            made = _written(fleet, asked, folder, old, options, now)
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


def _before(out: Path, signers: str) -> Manifest | None:
    """What an older bundle of the same key has. Another folder is not touched."""
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


def _written(
    fleet: Fleet, asked: Mapping[str, asking.Wanted], folder: Path, old: Manifest | None, options: Options, now: float
) -> Made:
    kinds: dict[str, list[asking.Wanted]] = {}
    there = {one.folder: one for one in old.repositories} if old else {}
    for raw, _ in fleet.pairs:
        one = asked[raw.name]
        place = folder / one.folder
        place.mkdir(exist_ok=True)
        kinds.setdefault(one.folder, []).append(one)
        if one.packages:
            before = options.out / one.folder if one.folder in there else None
            known = {each.file: each.sha256 for each in there[one.folder].packages} if before else {}
            resolve.fetched(raw, one, place, before, known)
    until = now + options.days * 86_400
    repositories = []
    with repository.signer() as key:
        for name, hosts in kinds.items():
            about = hosts[0]
            repository.index(folder / name, about, until, now, key)
            repositories.append(
                Repository(
                    folder=name,
                    family=about.family,
                    distribution=about.distribution,
                    release=about.release,
                    architecture=about.architecture,
                    kernels=tuple(sorted({kernel for host in hosts for kernel in host.kernels})),
                    packages=repository.packages(folder / name, about.family),
                )
            )
        (folder / KEY).write_text(key.public(), encoding="utf-8")
        fingerprint = key.fingerprint
    told = tuple(repositories)
    used = licences.judge(((p.name, p.section) for each in told for p in each.packages), options.accepted)
    downloads = tuple(sorted({each for one in asked.values() for each in one.downloads}))
    for each in {each.sha256: each for each in downloads}.values():
        _download(each, folder / FILES / each.sha256, options.out / FILES / each.sha256)
    keys = sorted({key for one in asked.values() for key in one.keys})
    _keys(keys, folder / KEYS)
    (folder / BOM).write_text(json.dumps(bom(told, downloads, _time(now)), indent=1) + "\n", encoding="utf-8")
    manifest = Manifest(
        made_at=_time(now),
        expires_at=_time(until),
        key=fingerprint,
        specs=tuple(sorted({identifier(raw) for raw, _ in fleet.pairs})),
        repositories=told,
        accepted=tuple(name for name in used if name in options.accepted),
        downloads=downloads,
        keys=tuple(one.url for one in keys),
        files=files(folder),
    )
    kept = sum(1 for name, file in manifest.files.items() if old and old.files.get(name) == file)
    return Made(manifest=manifest, licences=tuple(used), kept=kept)


def _download(one: Named, target: Path, before: Path) -> None:
    """The file at the address, or that of the bundle before, which is known to be whole."""
    target.parent.mkdir(exist_ok=True)
    if before.exists():
        resolve.linked(before, target)
        return
    try:
        wanted = fetched.Wanted(str(target), one.sha256, MOST, 0o644)
        fetched.put_answer(wanted, lambda: urllib.request.urlopen(one.url, timeout=SECONDS))
    except (fetched.Refused, OSError, ValueError) as error:
        if getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise GpuprovError(
            f"{one.of}: {one.url} did not come: {error}", "correct the url, its sha256, or https_proxy here"
        ) from error


def _keys(wanted: Iterable[asking.Key], folder: Path) -> None:
    """The keys of package sources that the specs name by their address, judged by their fingerprints."""
    for one in wanted:
        block = {"of": "the bundle", "url": one.source, "key_url": one.url, "fingerprint": one.fingerprint}
        try:
            data, _ = repository_key.key(block, os.environ, repository_key.over_https)
        except Refused as error:
            raise GpuprovError(str(error)) from error
        folder.mkdir(exist_ok=True)
        (folder / hashlib.sha256(one.url.encode()).hexdigest()).write_bytes(base64.b64decode(data))


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
