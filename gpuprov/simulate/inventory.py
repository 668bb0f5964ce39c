"""An Ansible inventory of simulated hosts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from gpuprov.core.safe_parse import Tree
from gpuprov.host_code import openpgp
from gpuprov.simulate.description import Description
from gpuprov.simulate.host import SimulatedHost
from gpuprov.simulate.parts.packages import URL
from gpuprov.simulate.repository import signing
from gpuprov.simulate.repository.build import repository
from gpuprov.simulate.repository.others import nvidia_place

# Each host is made afresh, so its host key is never the one seen before.
SSH_ARGS = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


def text(hosts: Iterable[SimulatedHost], spec: Tree | None = None) -> str:
    """Return YAML; values are written as JSON, which YAML reads too. `spec`: each host's gpuprov spec, merged with its
    groups'."""
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
        if spec:
            lines.append(f"      gpuprov: {json.dumps(spec)}")
    return "\n".join(lines) + "\n"


def mirror(description: Description, folder: Path) -> Tree:
    """Return the spec of a driver from the mirror that the host serves; `folder` holds its key. Packages and index are
    signed."""
    key = folder / f"{signing.VENDOR}.asc"
    block = {
        "url": f"{URL}/{nvidia_place(description.known)}",
        "key_file": str(key),
        "fingerprint": openpgp.parse_keys(key.read_bytes())[0].fingerprint,
        "signed": "both",
    }
    return {"nvidia_driver": {"source": "mirror", "repository": block}}


def write(hosts: Iterable[SimulatedHost], file: Path, description: Description | None = None) -> None:
    """Write the inventory; for hosts that serve a mirror, with the spec to install the driver from there."""
    spec = mirror(description, repository(description)) if description and description.mirror else None
    file.write_text(text(hosts, spec), encoding="utf-8")
