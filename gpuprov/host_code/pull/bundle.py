"""Checks of a signed archive: format, host, time, serial. It is read in memory; none of it becomes a file here."""

from __future__ import annotations

import calendar
import io
import re
import tarfile
import time
from typing import Any, NamedTuple, TypedDict

from . import identity, kept
from .config import Config
from .limits import FILES, WHEEL, WHEELS
from .refused import Refused
from .signed import AGAIN
from .state import State

FORMAT = 1
KIND = "pull"
MANIFEST, JOB = "manifest.json", "job.json"
# Seconds that a host's clock may be behind the one that made the bundle.
CLOCK = 86_400
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_WHEEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,250}\.whl")


class Wheel(TypedDict):
    """A file of the bundle."""

    name: str
    sha256: str
    size: int


class Manifest(TypedDict):
    """The manifest, of checked types."""

    host: str
    identity: dict[str, str]
    serial: int
    made_at: str
    expires_at: str
    mode: str
    reboot: bool
    job: str
    fleet: str
    python: list[int]
    services: list[str]
    wheels: list[Wheel]
    gpuprov_version: str


class Bundle(NamedTuple):
    """A bundle that is permitted on this host."""

    manifest: Manifest
    job: bytes


def read(archive: bytes) -> Bundle:
    """Read an archive. Raises Refused unless it contains a manifest and a job, in this format."""
    members = read_members(archive)
    if set(members) != {MANIFEST, JOB}:
        raise Refused(f"the bundle lacks {MANIFEST} or {JOB}", AGAIN)
    manifest = kept.parse_mapping(members[MANIFEST], MANIFEST, AGAIN)
    if manifest.get("gpuprov_bundle") != FORMAT or manifest.get("kind") != KIND:
        version = f"{str(manifest.get('gpuprov_bundle'))[:20]}, kind {str(manifest.get('kind'))[:20]}"
        fix = (
            "the puller and gpuprov bundle must be of versions that fit: install the puller again, or make the "
            "bundle again"
        )
        raise Refused(f"the bundle has format {version}; allowed: {FORMAT}, kind {KIND}", fix)
    return Bundle(check_types(manifest), members[JOB])


def read_members(archive: bytes) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as opened:
            for member in opened:
                if member.name not in (MANIFEST, JOB) or member.name in members:
                    raise Refused(
                        f"the bundle holds {member.name[:100]!r}; allowed: {MANIFEST} and {JOB}, each once", AGAIN
                    )
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
                    raise Refused(f"{member.name} in the bundle is not a plain file", AGAIN)
                if member.size > len(archive):
                    raise Refused(f"{member.name} in the bundle says that it has {member.size} bytes", AGAIN)
                file = opened.extractfile(member)
                members[member.name] = file.read() if file else b""
                if len(members[member.name]) != member.size:
                    raise Refused(f"{member.name} in the bundle is cut off", AGAIN)
    except (tarfile.TarError, ValueError, EOFError, OSError, RecursionError) as error:
        raise Refused(f"the bundle is not an archive: {str(error)[:200]}", AGAIN) from None
    return members


def check_types(manifest: Any) -> Manifest:
    kinds = {
        "host": str,
        "identity": dict,
        "serial": int,
        "made_at": str,
        "expires_at": str,
        "mode": str,
        "reboot": bool,
    }
    kinds.update({"job": str, "fleet": str, "python": list, "services": list, "wheels": list, "gpuprov_version": str})
    for name, kind in kinds.items():
        if type(manifest.get(name)) is not kind:
            raise Refused(f"{MANIFEST} has no {name} that is {kind.__name__}", AGAIN)
    good = manifest["mode"] in ("report", "apply") and 0 < manifest["serial"] < 1 << 53 and manifest["identity"]
    good = good and len(manifest["python"]) == 2 and all(type(number) is int for number in manifest["python"])
    good = good and all(isinstance(value, str) for value in (*manifest["services"], *manifest["identity"].values()))
    if not good or not all(map(is_wheel, manifest["wheels"])) or not 0 < len(manifest["wheels"]) <= FILES:
        raise Refused(f"{MANIFEST} has a mode, serial, identity, python or wheel that is not allowed", AGAIN)
    checked: Manifest = manifest
    if sum(wheel["size"] for wheel in checked["wheels"]) > WHEELS:
        raise Refused(f"the wheels of the bundle have more than {WHEELS >> 20} MiB", AGAIN)
    return checked


def is_wheel(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != {"name", "sha256", "size"}:
        return False
    name, digest, size = value["name"], value["sha256"], value["size"]
    good = isinstance(name, str) and bool(_WHEEL.fullmatch(name)) and ".." not in name
    good = good and isinstance(digest, str) and bool(re.fullmatch(r"[0-9a-f]{64}", digest))
    return good and type(size) is int and 0 < size <= WHEEL


def judge(manifest: Manifest, config: Config, state: State, now: float) -> None:
    """Raise Refused unless it is for this host and this time, and not older than the last accepted bundle."""
    if manifest["host"] != config.name:
        raise Refused(f"the bundle is of {manifest['host'][:100]!r}, and this is {config.name}", AGAIN)
    for what, expected in sorted(manifest["identity"].items()):
        actual = identity.read(what, config)
        if actual != expected.strip().lower():
            fix = (
                "correct the host's variables in the inventory and make the bundle again, if this is the host; "
                "nothing was run"
            )
            raise Refused(
                f"the bundle is of a host with {what} {expected[:100]}, and this one has {actual or 'none'}", fix
            )
    made = read_seconds("made_at", manifest["made_at"])
    expires = read_seconds("expires_at", manifest["expires_at"])
    if now < made - CLOCK:
        raise Refused(
            f"the bundle was made at {manifest['made_at']}, and this clock is before that", "set the clock (chrony)"
        )
    if now >= expires:
        raise Refused(f"the bundle expired at {manifest['expires_at']}", AGAIN)
    if manifest["serial"] < state.serial:
        message = f"the bundle has serial {manifest['serial']}, and {state.serial} was accepted before"
        raise Refused(message, "make a new bundle; gpuprov bundle gives it a serial that is higher")


def read_seconds(name: str, text: str) -> float:
    try:
        return float(calendar.timegm(time.strptime(text, _TIME)))
    except (ValueError, OverflowError):
        raise Refused(f"{name} of the bundle is {text[:40]!r}; allowed: 2026-11-23T18:00:00Z", AGAIN) from None
