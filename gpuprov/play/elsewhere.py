"""Continue only if the host is another machine than the one that runs Ansible: a reboot would end the run that
requested it.

Compares boot and process namespace of both. A container on this machine is another host, unless it is the one that runs
Ansible.

reasons: Reasons why the host has to be rebooted, for the refusal.

Returns:
machine: The host's boot and process namespace.
"""

import subprocess
from typing import TypedDict

from gpuprov.core import ended
from gpuprov.host_code import machine
from gpuprov.play.host import Host, Result, StepFailed

LOCAL = ("local", "ansible.builtin.local")


class Arguments(TypedDict, total=False):
    """Those of the task."""

    reasons: list[str]


def run(host: Host, arguments: Arguments) -> Result:
    """Query both, and compare. Raises StepFailed."""
    local = str(host.template(host.variables.get("ansible_connection") or "")) in LOCAL
    identity = "" if local else _find_identity(host)
    if local or machine.is_same(_find_own_identity(), identity):
        why = "; ".join(arguments["reasons"])
        raise StepFailed(
            f"a reboot is required ({why}), and {host.name} is this very machine: gpuprov does not reboot it."
            " Fix: reboot it yourself, then apply again"
        )
    return {"changed": False, "machine": identity}


def _find_identity(host: Host) -> str:
    answer = host.shell(machine.IDENTITY)
    if "stdout" not in answer:
        raise StepFailed(ended.answer(answer) or "the host gave no answer")
    return str(answer["stdout"])


def _find_own_identity() -> str:
    return subprocess.run(["/bin/sh", "-c", machine.IDENTITY], capture_output=True, text=True, check=False).stdout
