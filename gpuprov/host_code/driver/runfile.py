"""NVIDIA's .run file on a host: its verification, and its installer."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from ..packages.commands import run
from ..packages.other_driver import RECORD
from .dkms import Failed

HEADER = 65536
RIGHT = "the right file, and the sha256 that sha256sum says of it, compared with what NVIDIA publishes"


def judge(path: str, of: str, version: str) -> None:
    """Refuse and delete a file that fails its own check, or contains another driver. `of`: its origin. Raises
    Failed."""
    if problem := find_problem(path, version):
        with suppress(FileNotFoundError):
            os.unlink(path)
        raise Failed(f"nvidia_driver.runfile {of}: {problem}; nothing was changed. Fix: {RIGHT}")


def find_problem(path: str, version: str) -> str:
    ran = run(["sh", path, "--check"])
    if ran.status:
        end = " ".join((ran.out + ran.err).splitlines()[-2:])
        return f"it has the checksum of the spec, and its own check says: {end}"
    actual = read_version(path)
    return (
        ""
        if actual == version
        else f"it holds driver {actual or 'of unknown version'}, and nvidia_driver.version is {version}"
    )


def read_version(path: str) -> str:
    """Return the driver's version in the file's own header; "" if it has none."""
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
            "/var/log/nvidia-installer.log says why; a driver that was there is untouched unless it had been built "
            "already. Mend it and apply again"
        )


def remove(program: str, version: str) -> None:
    """Run NVIDIA's uninstaller, which asks nothing: option_table.h of https://github.com/NVIDIA/nvidia-installer.
    Raises Failed."""
    more = [] if program.endswith("-uninstall") else ["--uninstall"]
    ran = run([program, *more, "--silent"])
    if ran.status or os.path.exists(RECORD):
        lines = [line.strip() for line in (ran.err + "\n" + ran.out).splitlines() if line.strip()]
        raise Failed(
            f"{program} did not remove driver {version}: {lines[0] if lines else f'status {ran.status}'}. Fix: "
            "/var/log/nvidia-uninstall.log says why; correct it and apply again"
        )
