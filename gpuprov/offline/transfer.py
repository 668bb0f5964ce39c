"""Bytes to and from a host, over the connection that reads it: a folder of packages is no text of a script."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from gpuprov.errors import GpuprovError
from gpuprov.gather.command import ssh_arguments
from gpuprov.gather.settings import Settings
from gpuprov.spec.model import RawHost

LIMIT = 1800.0
"""Seconds for all of a bundle on a slow line."""


def argv(raw: RawHost, script: str) -> list[str]:
    """What runs a script on the host as root, with its standard input left to the bytes. Raises GpuprovError."""
    settings = Settings(raw)
    if settings.sudo and settings.text("become_password"):
        raise GpuprovError(
            f"{raw.name}: a bundle cannot be carried to a host whose sudo wants a password", "allow sudo without one"
        )
    sudo = [settings.text("become_exe", "sudo"), "-n", "-H", "-u", settings.become_user, "--"] if settings.sudo else []
    remote = [*sudo, "/bin/sh", "-c", script]
    if settings.kind == "local":
        return remote
    if settings.kind in ("podman", "docker"):
        user = ["-u", settings.text("user")] if settings.text("user") else []
        return [settings.kind, *settings.words("container_args"), "exec", "-i", *user, settings.host, *remote]
    if settings.kind == "ssh":
        return [*ssh_arguments(settings), "--", settings.host, shlex.join(remote)]
    raise GpuprovError(
        f"{raw.name}: a bundle cannot be carried over the connection {settings.kind}",
        "use ssh with a key, podman, docker or local",
    )


def run(raw: RawHost, script: str, *, given: Path | None = None, kept: Path | None = None) -> str:
    """Run it; `given` is its standard input, `kept` gets its standard output. What it printed, unless kept. Raises GpuprovError."""
    source = given.open("rb") if given else subprocess.DEVNULL
    target = kept.open("wb") if kept else subprocess.PIPE
    try:
        done = subprocess.run(
            argv(raw, script), stdin=source, stdout=target, stderr=subprocess.PIPE, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise GpuprovError(f"{raw.name} did not end within {LIMIT:g} s", "run it again") from error
    finally:
        for file in (source, target):
            if not isinstance(file, int):
                file.close()
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())[-600:]
        raise GpuprovError(
            f"{raw.name}: {said or f'status {done.returncode}'}", "correct it on the host, then run it again"
        )
    return (done.stdout or b"").decode(errors="replace")
