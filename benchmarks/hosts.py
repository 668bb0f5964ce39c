"""Many ssh hosts on one machine: one simulated host, converged, with an sshd on each of many ports."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from gpuprov.simulate import container
from gpuprov.simulate.description import Description
from gpuprov.simulate.host import SimulatedHost

NAME = "bench"
FIRST_PORT = 2201
SPEC = "  vars:\n    gpuprov:\n      nouveau: {}\n      nvidia_driver: {version: '535'}\n      persistence: {}\n"


def inventory(host: SimulatedHost, count: int, folder: Path, control: bool = False) -> Path:
    """Write an inventory of `count` hosts: one container, many ports."""
    options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    lines = ["all:", *SPEC.rstrip().splitlines(), "  hosts:"]
    for number in range(count):
        port = FIRST_PORT + number if count > 1 else host.port
        lines.append(
            f"    gpu{number:03}: {{ansible_host: {host.address}, ansible_port: {port}, ansible_user: root, "
            f'ansible_ssh_private_key_file: {host.key_file}, ansible_ssh_common_args: "{options}", '
            "ansible_python_interpreter: /usr/bin/python3}"
        )
    file = folder / f"inventory-{count}{'-control' if control else ''}.yaml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def up(count: int, folder: Path, gpuprov: Path) -> SimulatedHost:
    """Start the converged host with `count` more sshd. Takes some minutes the first time: the driver is really
    built."""
    host = container.up(NAME, Description(user="root"))
    sys.stderr.write("applying the spec to the simulated host (a real DKMS build) ...\n")
    single = inventory(host, 1, folder)
    subprocess.run([gpuprov, "apply", "--yes", single], check=True, stdout=subprocess.DEVNULL)
    # Each sshd admits as many logins at once as there are hosts; MaxStartups is per daemon.
    # A boot id of its own makes each a host of its own: apply works on a machine by one of its names alone.
    own = (
        "mount --bind /run/boot-$p /proc/sys/kernel/random/boot_id && exec /usr/sbin/sshd -D -p $p -o "
        "PidFile=/run/sshd-$p.pid"
    )
    sshd = f"p=$p setsid unshare --mount sh -c '{own}' </dev/null >/dev/null 2>&1 &"
    ports = f"$(seq {FIRST_PORT} {FIRST_PORT + count - 1})"
    script = f"for p in {ports}; do cat /proc/sys/kernel/random/uuid > /run/boot-$p; {sshd} done"
    container.run(NAME, script)
    time.sleep(1)
    return host


def down() -> None:
    """Remove the host and all its sshd."""
    container.down(NAME)
