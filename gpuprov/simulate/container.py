"""Simulated hosts as podman containers: up, down, listing. Only containers with our label are ever touched."""

from __future__ import annotations

import json
import re
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from gpuprov.errors import GpuprovError
from gpuprov.simulate import image, tools

PREFIX = "gpuprov-sim-"
LABEL = "gpuprov.simulated-host"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
PATIENCE = 180.0  # seconds for systemd and sshd; 3 are usual, and one stuck unit is given up by systemd after 90


@dataclass(frozen=True)
class SimulatedHost:
    """How to reach a simulated host."""

    name: str
    address: str
    port: int
    user: str
    key_file: str


def up(name: str, distribution: str = "debian12", ssh_key: Path | None = None, user: str = image.USER,
       tag: str | None = None) -> SimulatedHost:  # fmt: skip
    """A running host that answers ssh; one that is up already is returned as it is. `tag`: an image that `freeze` made."""
    if not NAME.fullmatch(name):
        raise GpuprovError(f'host name is "{name}"; allowed: lower-case letters, digits and inner dashes, at most 42')
    tools.require()
    key = ssh_key or _key_pair()
    known = _distributions()
    if known.get(name, distribution) != distribution:
        raise GpuprovError(
            f"{name} is up with {known[name]}, not {distribution}", hint=f"python -m gpuprov.simulate down {name}"
        )
    if name not in known:
        _create(name, distribution, tag or image.build(distribution))
    elif not _inspect(name)["State"]["Running"]:
        _podman("start", PREFIX + name)
    try:
        return _ready(name, user, key)
    except BaseException:
        if name not in known:  # made just now: leave nothing half-made behind
            down(name)
        raise


def down(name: str) -> bool:
    """Remove one of our hosts; False where there is none of that name."""
    if name not in _distributions():
        return False
    _podman("rm", "--force", "--time", "0", PREFIX + name)
    return True


def freeze(name: str, tag: str) -> None:
    """Make an image of a host's disk, from which `up` starts copies."""
    _podman("commit", "--quiet", PREFIX + name, tag)


def listing() -> list[tuple[str, str, str]]:
    """(name, distribution, state) of each of our hosts."""
    found = json.loads(_podman("ps", "--all", "--filter", f"label={LABEL}", "--format", "json") or "[]")
    rows = [(entry["Names"][0], entry["Labels"][LABEL], entry["State"]) for entry in found]
    return sorted((name.removeprefix(PREFIX), label, state) for name, label, state in rows if name.startswith(PREFIX))


def gateway(name: str) -> str:
    """This machine's address as the host sees it (for a proxy or a package repository run here)."""
    return str(_inspect(name)["NetworkSettings"]["Gateway"])


def run(name: str, script: str) -> str:
    """Standard output of a shell script run as root inside, without ssh."""
    return _podman("exec", "--interactive", PREFIX + name, "bash", "-e", stdin=script)


def _create(name: str, distribution: str, tag: str) -> None:
    # systemd needs a cgroup tree of its own, hence --privileged; podman's default limits cannot be set everywhere.
    _podman(
        *("run", "--detach", "--name", PREFIX + name, "--hostname", name, "--label", f"{LABEL}={distribution}"),
        *("--systemd=always", "--privileged", "--ulimit", "nofile=20000:20000", "--ulimit", "nproc=10000:10000"),
        *(tag, "/sbin/init"),
    )


def _ready(name: str, user: str, key: Path) -> SimulatedHost:
    deadline = time.monotonic() + PATIENCE
    public = key.with_name(key.name + ".pub").read_text(encoding="utf-8").strip()
    homes = {"root": "/root", image.USER: f"/home/{image.USER}"}
    run(name, "".join(
        f"install -d -m 700 -o {account} -g {account} {home}/.ssh\n"
        f"grep -qxF '{public}' {home}/.ssh/authorized_keys 2>/dev/null || "
        f"echo '{public}' >> {home}/.ssh/authorized_keys\n"
        f"chown {account}: {home}/.ssh/authorized_keys; chmod 600 {home}/.ssh/authorized_keys\n"
        for account, home in homes.items()
    ))  # fmt: skip
    state = "unknown"
    while state not in {"running", "degraded"}:
        if time.monotonic() > deadline:
            raise GpuprovError(f"{name}: systemd is {state} after {PATIENCE:g} s", hint=f"podman logs {PREFIX}{name}")
        state = run(name, "systemctl is-system-running 2>/dev/null || true").strip()
        time.sleep(0.2)
    address = str(_inspect(name)["NetworkSettings"]["IPAddress"])
    while not _greets(address, 22):
        if time.monotonic() > deadline:
            raise GpuprovError(f"{name}: no sshd at {address}:22 after {PATIENCE:g} s")
        time.sleep(0.2)
    return SimulatedHost(name, address, 22, user, str(key))


def _greets(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _key_pair() -> Path:
    key = image.cache_dir() / "id_ed25519"
    if not key.exists():
        tools.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuprov-simulate", "-f", str(key)])
    return key


def _distributions() -> dict[str, str]:
    return {name: distribution for name, distribution, _ in listing()}


def _inspect(name: str) -> dict[str, dict[str, object]]:
    entries: list[dict[str, dict[str, object]]] = json.loads(_podman("inspect", PREFIX + name))
    return entries[0]


def _podman(*arguments: str, stdin: str | None = None) -> str:
    # runc where it is installed: crun refuses machines with hybrid cgroups.
    runtime = ["--runtime", "runc"] if shutil.which("runc", path="/usr/sbin:/usr/bin:/sbin") else []
    return tools.run(["podman", *runtime, *arguments], stdin=stdin)
