"""NVIDIA's .run file on a host: whether it is the one of the spec, and its installer."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress

from ..packages.commands import run
from .dkms import Failed

HEADER = 65536
MEND = "mend the url, the network, or the proxy of the host"
RIGHT = "the right file, and the sha256 that sha256sum says of it, compared with what NVIDIA publishes"


def judge(path: str, of: str, sha256: str, version: str, said: str) -> None:
    """Refuse a file that is not the one of the spec, and take it away. `of`: where it came from. `said`: what was in the way of
    fetching it. Raises Failed."""
    problem, hint = _problem(path, sha256, version, said)
    if problem:
        with suppress(FileNotFoundError):
            os.unlink(path)
        raise Failed(f"nvidia_driver.runfile {of}: {problem}; nothing was changed. Fix: {hint}")


def _problem(path: str, sha256: str, version: str, said: str) -> tuple[str, str]:
    if other := re.search(r"it was ([0-9a-f]{64})", said):
        return f"its SHA-256 is {other[1]}, and the spec says {sha256}", RIGHT
    if not os.path.isfile(path) or os.path.getsize(path) == 0:
        return " ".join(said.split()) or "it has not come", MEND
    found = _sum(path)
    if found != sha256.lower():
        return f"its SHA-256 is {found}, and the spec says {sha256}", RIGHT
    ran = run(["sh", path, "--check"])
    if ran.status:
        end = " ".join((ran.out + ran.err).splitlines()[-2:])
        return f"it has the checksum of the spec, and its own check says: {end}", RIGHT
    mine = version_of(path)
    if mine != version:
        return f"it holds driver {mine or 'of unknown version'}, and nvidia_driver.version is {version}", RIGHT
    return "", ""


def _sum(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def version_of(path: str) -> str:
    """The driver's version, by the words of the file's own header; empty where it has none."""
    with open(path, "rb") as file:
        words = re.search(rb"^version_string=\"?([^\"\n]*)", file.read(HEADER), re.MULTILINE)
    return words[1].decode(errors="replace").strip() if words else ""


def install(path: str, version: str, options: list[str]) -> None:
    """Run NVIDIA's installer. Raises Failed."""
    ran = run(["sh", path, *options], {"TMPDIR": os.path.dirname(path)})
    if ran.status:
        lines = [line.strip() for line in (ran.out + "\n" + ran.err).splitlines() if re.search("ERROR|error", line)]
        raise Failed(
            f"NVIDIA's installer of {version} failed: {lines[0] if lines else f'status {ran.status}'}. Fix: "
            "/var/log/nvidia-installer.log says why; a driver that was there is untouched unless it had been built already. Mend it "
            "and apply again"
        )
