"""Simulated hosts as containers: up, down, reboot, list. Touches only containers with our label."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import engine, engine_choice, guard, image, tools
from gpuprov.simulate.description import Description
from gpuprov.simulate.host import Listed, SimulatedHost, check_name, decode, greets, key_pair, public_key

PLAIN = Description()
PREFIX = "gpuprov-sim-"
LABEL = "gpuprov.simulated-host"
PATIENCE = 180.0  # seconds for systemd and sshd; 3 are usual, and one stuck unit is given up by systemd after 90
# One program of the engine for many looks: it costs more than they do.
STARTED = """for _ in $(seq 100); do
state=$(systemctl is-system-running 2>/dev/null || true)
case $state in running|degraded) break;; esac
sleep 0.2
done
echo "$state"
"""
# A container shares the machine's boot_id: when its own systemd was started tells one boot from the next.
BOOT = "systemctl show --property=UserspaceTimestampMonotonic --value"
HOMES = {"root": "/root", image.USER: f"/home/{image.USER}"}


def up(
    name: str, description: Description = PLAIN, *, tag: str | None = None, volumes: tuple[tuple[Path, str], ...] = ()
) -> SimulatedHost:
    """Start a host and wait until it answers ssh. Returns a running host unchanged.

    `tag`: an image made by `freeze`, or a folder (with podman) with a host's whole root. `volumes`: folders of this
    machine to mount read-only, with their path inside.
    """
    check_name(name)
    tools.require()
    known = describe(name)
    if known not in (None, description):
        raise GpuprovError(f"{name} is up with another description", fix=f"gpuprov simulate down {name}")
    if known is None:
        _create(name, description, tag or image.build(description.distribution), volumes)
    elif not _state(name).running:
        engine.engine("start", PREFIX + name)
    try:
        return _ready(name, description.user, key_pair())
    except BaseException:
        if known is None:  # made just now: leave nothing half-made behind
            down(name)
        raise


def down(name: str) -> bool:
    """Remove a host; return False if no host has this name."""
    if all(_name(entry) != name for entry in engine.labelled(LABEL)):
        return False
    engine.remove(PREFIX + name)
    return True


def reboot(name: str) -> None:
    """Reboot its userland, and wait until it is up again: services restart, /run is empty; the kernel stays."""
    before = run(name, BOOT)
    with suppress(GpuprovError):  # the engine may not tell how a program ended whose container has ended meanwhile
        run(name, "systemctl reboot")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if run(name, f"{BOOT}; systemctl is-system-running >/dev/null 2>&1 || true") not in (before, "0\n"):
                break
        except GpuprovError:
            pass  # between the two boots there is nothing to ask
        time.sleep(0.2)
    else:
        raise GpuprovError(f"{name} has not rebooted within {PATIENCE:g} s", f"gpuprov simulate logs {name}")
    description = describe(name)
    _ready(name, description.user if description else image.USER, key_pair())


def freeze(name: str, tag: str) -> None:
    """Make an image of a host's disk, from which `up` starts copies."""
    quiet = ("--quiet",) if engine_choice.chosen() == "podman" else ()
    engine.engine("commit", *quiet, PREFIX + name, tag)


def describe(name: str) -> Description | None:
    """Return the description that the host was made from; None if there is no such host. Raises as `decode` does."""
    for entry in engine.labelled(LABEL):
        if _name(entry) == name:
            return decode(name, entry.labels[LABEL], Description)
    return None


class _Known(msgspec.Struct):
    """What every version of gpuprov understands of a description."""

    distribution: str = PLAIN.distribution


def listing() -> list[Listed]:
    """List our hosts."""
    rows = []
    for entry in engine.labelled(LABEL):
        known = msgspec.json.decode(entry.labels[LABEL], type=_Known)
        rows.append(Listed(_name(entry), "container", known.distribution, entry.state.status))
    return sorted(rows, key=lambda row: row.name)


def gateway(name: str) -> str:
    """Return this machine's address as seen by the host (for a proxy or a package repository run here)."""
    return engine.network(PREFIX + name).gateway


def run(name: str, script: str) -> str:
    """Run a shell script as root inside, without ssh, and return its standard output."""
    return engine.engine("exec", "--interactive", PREFIX + name, "bash", "-e", stdin=script)


def write(name: str, archive: bytes) -> None:
    """Unpack a tar archive over the host's root."""
    engine.write(PREFIX + name, archive)


def logs(name: str) -> str:
    """Return the end of its journal, or of the engine's log if it is not running."""
    if _state(name).running:
        return run(name, "journalctl --no-pager --lines 80 2>&1 || true")
    return engine.engine("logs", "--tail", "80", PREFIX + name)


def _name(entry: engine.Container) -> str:
    return entry.name.removeprefix("/").removeprefix(PREFIX)


def _state(name: str) -> engine.State:
    return engine.inspect(PREFIX + name)[0].state


def _create(name: str, description: Description, tag: str, volumes: tuple[tuple[Path, str], ...]) -> None:
    label = msgspec.json.encode(description).decode()
    engine.engine(
        *("run", "--detach", "--name", PREFIX + name, "--hostname", name, "--label", f"{LABEL}={label}"),
        *engine.systemd_flags(),
        *engine.address_flags(PREFIX + name, LABEL),
        *(f"--volume={here}:{inside}:ro" for here, inside in (*guard.VOLUMES, *volumes)),
        *(("--rootfs",) if tag.startswith("/") else ()),
        *(tag, "/sbin/init"),
    )


def _ready(name: str, user: str, key: Path) -> SimulatedHost:
    deadline = time.monotonic() + PATIENCE
    state = "unknown"
    while state not in {"running", "degraded"}:
        if time.monotonic() > deadline:
            raise GpuprovError(f"{name}: systemd is {state} after {PATIENCE:g} s", fix=f"gpuprov simulate logs {name}")
        state = run(name, STARTED).strip()
    public = public_key(key)
    run(
        name,
        "".join(
            f"install -d -m 700 -o {account} -g {account} {home}/.ssh\n"
            f"grep -qxF '{public}' {home}/.ssh/authorized_keys 2>/dev/null || "
            f"echo '{public}' >> {home}/.ssh/authorized_keys\n"
            f"chown {account}: {home}/.ssh/authorized_keys; chmod 600 {home}/.ssh/authorized_keys\n"
            for account, home in HOMES.items()
        ),
    )
    address = engine.network(PREFIX + name).address
    while not greets(address, 22):
        if time.monotonic() > deadline:
            raise GpuprovError(f"{name}: no sshd at {address}:22 after {PATIENCE:g} s")
        time.sleep(0.2)
    return SimulatedHost(name, address, 22, user, str(key))
