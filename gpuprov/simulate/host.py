"""Common parts of both kinds of simulated host: names, access, listing."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import image, tools

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
T = TypeVar("T")


@dataclass(frozen=True)
class SimulatedHost:
    """Access to a simulated host."""

    name: str
    address: str
    port: int
    user: str
    key_file: str

    @property
    def login(self) -> str:
        """Return the command that logs in."""
        return (
            f"ssh -i {self.key_file} -p {self.port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
            f"{self.user}@{self.address}"
        )


@dataclass(frozen=True)
class Listed:
    """One row of a listing."""

    name: str
    kind: str
    distribution: str
    # The engine's term (`running`, `exited`, `dead` ...).
    state: str


def check_name(name: str) -> None:
    """Raise unless this is a valid host name."""
    if not NAME.fullmatch(name):
        raise GpuprovError(f'host name is "{name}"; allowed: lower-case letters, digits and inner dashes, at most 42')


def decode(name: str, content: str | bytes, kept: type[T]) -> T:
    """Return what a host was made from. Raises GpuprovError where another version of gpuprov wrote it, which may have
    fields unknown to this version."""
    try:
        return msgspec.json.decode(content, type=kept)
    except msgspec.DecodeError as error:
        fix = f"gpuprov simulate down {name}"
        raise GpuprovError(f"{name} was made by another version of gpuprov: {error}", fix=fix) from None


def key_pair() -> Path:
    """Return the private key that every simulated host accepts; the public one is beside it."""
    key = image.cache_dir() / "id_ed25519"
    with image.alone(key.with_suffix(".lock")):
        if not key.exists():
            tools.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuprov-simulate", "-f", str(key)])
    return key


def public_key(key: Path) -> str:
    """Return the line for authorized_keys."""
    return key.with_name(key.name + ".pub").read_text(encoding="utf-8").strip()


def greets(address: str, port: int) -> bool:
    """True if an sshd answers there."""
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
