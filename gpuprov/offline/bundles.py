"""Make a bundle: what each host's apt resolves, in a signed repository for each release, under a signed manifest."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import msgspec

from gpuprov.errors import GpuprovError
from gpuprov.fleet import Fleet
from gpuprov.offline import licences, repository, resolve
from gpuprov.offline import wanted as asking
from gpuprov.offline.bom import bom
from gpuprov.offline.model import BOM, KEY, MANIFEST, SIGNERS, File, Manifest, Repository
from gpuprov.offline.specs import identifier
from gpuprov.pull import signing


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """`accepted`: classes of licences that the site says it may copy. `days`: until the bundle expires."""

    out: Path
    key: Path
    days: float = 30.0
    accepted: tuple[str, ...] = ()
    forks: int = 0


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What was written; `licences`: classes in it that are no free software."""

    manifest: Manifest
    licences: tuple[str, ...]


def make(fleet: Fleet, options: Options, now: float) -> Made:
    """Write the bundle, whole or not at all. Raises GpuprovError."""
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise GpuprovError(
            f"{options.out} is there and not empty", "name another folder with --out: a bundle is never changed"
        )
    asking.refuse_unsupported(fleet.pairs)
    signers = signing.allowed_signers(options.key)
    signing.signature(options.key, b"")
    asked = asking.read(fleet.pairs, options.forks)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{options.out.name}.", dir=options.out.parent) as place:
            folder = Path(place) / "bundle"
            folder.mkdir()
            made = _written(fleet, asked, folder, options, now)
            data = msgspec.json.encode(made.manifest)
            (folder / MANIFEST).write_bytes(signing.signature(options.key, data) + data)
            if options.out.is_dir():
                options.out.rmdir()
            os.replace(folder, options.out)
            options.out.with_name(options.out.name + SIGNERS).write_text(signers, encoding="utf-8")
    except OSError as error:
        raise GpuprovError(f"{options.out} cannot be written: {error}", "name another folder with --out") from error
    return made


def _written(fleet: Fleet, asked: dict[str, asking.Wanted], folder: Path, options: Options, now: float) -> Made:
    kinds: dict[str, list[asking.Wanted]] = {}
    for raw, _ in fleet.pairs:
        one = asked[raw.name]
        place = folder / _name(one)
        place.mkdir(exist_ok=True)
        kinds.setdefault(_name(one), []).append(one)
        if one.packages:
            resolve.fetched(raw, one, place)
    found = {name: resolve.packages(folder / name) for name in kinds}
    used = licences.judge(((p.name, p.section) for each in found.values() for p in each), options.accepted)
    until = now + options.days * 86_400
    repositories = []
    with repository.signer() as key:
        for name, hosts in kinds.items():
            (folder / name / resolve.INDEX).touch()
            repository.index(folder / name, hosts[0].release, hosts[0].architecture, until, now, key)
            kernels = tuple(sorted({kernel for host in hosts for kernel in host.kernels}))
            about = hosts[0]
            repositories.append(
                Repository(
                    folder=name,
                    distribution=about.distribution,
                    release=about.release,
                    architecture=about.architecture,
                    kernels=kernels,
                    packages=found[name],
                )
            )
        (folder / KEY).write_text(key.public(), encoding="utf-8")
        fingerprint = key.fingerprint
    told = tuple(repositories)
    (folder / BOM).write_text(json.dumps(bom(told, _time(now)), indent=1) + "\n", encoding="utf-8")
    manifest = Manifest(
        made_at=_time(now),
        expires_at=_time(until),
        key=fingerprint,
        specs=tuple(sorted({identifier(raw) for raw, _ in fleet.pairs})),
        repositories=told,
        files=files(folder),
    )
    return Made(manifest=manifest, licences=tuple(used))


def files(folder: Path) -> dict[str, File]:
    """Every file of a bundle that its manifest answers for."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()):
        name = str(path.relative_to(folder))
        if path.is_symlink() or not path.is_file():
            raise GpuprovError(f"{path} is no plain file", "make the bundle again")
        if name != MANIFEST:
            found[name] = File(sha256=resolve.sha256(path), size=path.stat().st_size)
    return found


def _name(one: asking.Wanted) -> str:
    return f"{one.distribution}{one.release}-{one.architecture}"


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
