"""An Ansible inventory of simulated hosts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from gpuprov.simulate.host import SimulatedHost

# Each host is made afresh, so its host key is never the one seen before.
SSH_ARGS = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


def text(hosts: Iterable[SimulatedHost]) -> str:
    """YAML; scalars are written as JSON strings, which YAML reads too."""
    lines = ["all:", "  hosts:"]
    for host in hosts:
        lines.append(f"    {host.name}:")
        values: dict[str, str | int] = {
            "ansible_host": host.address,
            "ansible_port": host.port,
            "ansible_user": host.user,
            "ansible_ssh_private_key_file": host.key_file,
            "ansible_ssh_common_args": SSH_ARGS,
            "ansible_python_interpreter": "/usr/bin/python3",
        }
        lines += [f"      {key}: {json.dumps(value)}" for key, value in values.items()]
        if host.user != "root":
            lines.append("      ansible_become: true")
    return "\n".join(lines) + "\n"


def write(hosts: Iterable[SimulatedHost], file: Path) -> None:
    """Write the inventory."""
    file.write_text(text(hosts), encoding="utf-8")
