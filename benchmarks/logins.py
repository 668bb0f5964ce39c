"""`python -m benchmarks.logins [LOGINS]`: the cost of ssh on this machine: a login by each key exchange, one over a
shared connection, and the number of logins of an apply, with and without one.

A simulated Debian host with its own sshd. CPU time of ssh itself, user and system; the floor is to start `ssh -V`.
Needs root and podman.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from benchmarks.controller import BIN, spent
from gpuprov.simulate import container, inventory
from gpuprov.simulate.host import SimulatedHost

NAME = "bench-logins"
EXCHANGES = ("sntrup761x25519-sha512@openssh.com", "curve25519-sha256", "ecdh-sha2-nistp256")
SHARED = "-o ControlMaster=auto -o ControlPersist=60s"
DAYS = count(40)


def words(host: SimulatedHost, *more: str) -> list[str]:
    """Return the ssh command of a login to the host."""
    return [
        "ssh",
        "-T",
        "-F",
        "none",
        "-i",
        host.key_file,
        *inventory.SSH_ARGS.split(),
        "-o",
        "LogLevel=ERROR",
        *more,
        f"{host.user}@{host.address}",
    ]


def each(argv: Sequence[str], times: int) -> float:
    """Return milliseconds of CPU per run."""
    return 1000 * sum(spent(argv, (0,)).cpu for _ in range(times)) / times


def logins(host: SimulatedHost, folder: Path, times: int) -> None:
    """Print the cost of a login."""
    floor = each(["ssh", "-V"], times)
    told = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr.strip()
    sys.stdout.write(f"{told}; to start it: {floor:.1f} ms of CPU\n")
    ways = {"as ssh chooses": (), **{name: ("-o", f"KexAlgorithms={name}") for name in EXCHANGES}}
    for name, options in ways.items():
        argv = [*words(host, *options), "true"]
        spent(argv, (0,))
        cost = each(argv, times)
        sys.stdout.write(f"  {name:<36} {cost:6.1f} ms of CPU a login  {cost / floor:5.1f}x\n")
    argv = [*words(host, *SHARED.split(), "-o", f"ControlPath={folder}/socket"), "true"]
    spent(argv, (0,))
    cost = each(argv, times)
    sys.stdout.write(f"  {'over a connection that is there':<36} {cost:6.1f} ms of CPU each     {cost / floor:5.1f}x\n")
    subprocess.run([*words(host, "-O", "exit", "-o", f"ControlPath={folder}/socket")], check=True, capture_output=True)


def accepted() -> int:
    """Return the number of logins that the host's sshd has accepted."""
    return int(container.run(NAME, "journalctl --no-pager -t sshd | grep -c 'Accepted publickey' || true"))


def applies(host: SimulatedHost, folder: Path) -> None:
    """Print the cost of the commands with each way of using ssh."""
    (folder / "hosts").mkdir()
    inventory.write([host], folder / "hosts" / "hosts.yaml")
    ways = {"as it is": "", "shared": SHARED, "shared, curve25519": f"{SHARED} -o KexAlgorithms=curve25519-sha256"}
    for name, arguments in ways.items():
        given = {**os.environ, **({"ANSIBLE_SSH_ARGS": arguments} if arguments else {}), "HOME": str(folder)}
        for command in ("verify", "apply", "verify"):
            spec = {"nouveau": {}, "readings": {"keep_days": next(DAYS)}} if command == "apply" else {"nouveau": {}}
            (folder / "hosts" / "spec.yaml").write_text(json.dumps({"all": {"vars": {"gpuprov": spec}}}))
            before, began = accepted(), os.times()
            argv = [str(BIN / "gpuprov"), command, str(folder / "hosts"), *(["--yes"] if command == "apply" else [])]
            done = subprocess.run(
                argv, env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            if done.returncode not in (0, 1):
                raise SystemExit(done.stderr)
            ended = os.times()
            cpu = ended.children_user + ended.children_system - began.children_user - began.children_system
            sys.stdout.write(f"  {name:<20} {command:<8} {accepted() - before:3} logins  {cpu:5.1f} CPU-s\n")
            sys.stdout.flush()


def main() -> None:
    times = int(sys.argv[1]) if sys.argv[1:] else 40
    sys.stdout.write(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}\n")
    container.down(NAME)
    try:
        host = container.up(NAME)
        with tempfile.TemporaryDirectory() as name:
            logins(host, Path(name), times)
            applies(host, Path(name))
    finally:
        container.down(NAME)


if __name__ == "__main__":
    main()
