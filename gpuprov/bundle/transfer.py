"""Bytes to and from a host, over the connection that reads it: a folder of packages does not fit into the text of a
script."""

import io
import shlex
import subprocess
import threading
from pathlib import Path
from typing import IO

from gpuprov.core.errors import GpuprovError
from gpuprov.facts.collect.command import ssh_arguments
from gpuprov.facts.collect.settings import Settings
from gpuprov.spec.model import RawHost

# Seconds for a whole bundle on a slow line.
LIMIT = 1800.0
# Bytes of output other than a bundle.
LONGEST = 1 << 16


def argv(raw: RawHost, script: str) -> list[str]:
    """Return the command that runs a script on the host as root, with its standard input left to the bytes. Raises
    GpuprovError."""
    settings = Settings(raw)
    if settings.sudo and settings.text("become_password"):
        raise GpuprovError(
            f"{raw.name}: a bundle cannot be carried to a host whose sudo asks for a password", "allow sudo without one"
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


def run(raw: RawHost, script: str, *, given: Path | None = None, kept: Path | None = None, most: int = LONGEST) -> str:
    """Run the script; `given` is its standard input, `kept` gets its standard output, of at most so many bytes. Returns
    its output, unless kept. Raises GpuprovError."""
    source = given.open("rb") if given else subprocess.DEVNULL
    target = kept.open("wb") if kept else io.BytesIO()
    late, tail = threading.Event(), bytearray()
    try:
        with subprocess.Popen(argv(raw, script), stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:

            def give_up() -> None:
                late.set()
                child.kill()

            timer = threading.Timer(LIMIT, give_up)
            errors = threading.Thread(target=_read_tail, args=(child.stderr, tail), daemon=True)
            timer.start()
            errors.start()
            try:
                size = _copy(child.stdout, target, most)
                if size > most:
                    raise GpuprovError(
                        f"{raw.name}: it sent more than {most} bytes", "look at what its root's shell prints"
                    )
                child.wait()
            finally:
                timer.cancel()
                child.kill()
                errors.join(5)
        if late.is_set():
            raise GpuprovError(f"{raw.name} did not end within {LIMIT:g} s", "run it again")
        if child.returncode:
            message = " ".join(tail.decode(errors="replace").split())[-600:]
            raise GpuprovError(
                f"{raw.name}: {message or f'status {child.returncode}'}", "correct it on the host, then run it again"
            )
        return target.getvalue().decode(errors="replace") if isinstance(target, io.BytesIO) else ""
    finally:
        for file in (source, target):
            if not isinstance(file, int):
                file.close()


def _copy(source: IO[bytes] | None, target: IO[bytes], most: int) -> int:
    """Copy at most `most` bytes, and a block. Returns the number of bytes."""
    size = 0
    assert source is not None
    while size <= most and (block := source.read(1 << 16)):
        size += len(block)
        target.write(block)
    return size


def _read_tail(source: IO[bytes], tail: bytearray) -> None:
    while block := source.read(1 << 12):
        tail += block
        del tail[:-LONGEST]
