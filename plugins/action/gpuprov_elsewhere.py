"""Refuses to go on where the host is the very machine that runs Ansible: a reboot would end what asked for it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_onhost import machine, missing

try:
    from gpuprov.shared import ended

    MISSING = ""
except ImportError as error:
    MISSING = str(error)
LOCAL = ("local", "ansible.builtin.local")


class ActionModule(ActionBase):  # type: ignore[misc]
    """Ask both, and compare."""

    _requires_connection = True
    _VALID_ARGS = frozenset({"reasons"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known = task_vars or {}
        if MISSING:
            raise AnsibleActionFail(missing.package(MISSING, known))
        local = str(self._templar.template(known.get("ansible_connection") or "")) in LOCAL
        there = "" if local else self._there(known)
        if local or machine.same(_here(), there):
            why, host = "; ".join(self._task.args["reasons"]), known["inventory_hostname"]
            raise AnsibleActionFail(
                f"a reboot is required ({why}), and {host} is this very machine: gpuprov does not reboot it."
                " Fix: reboot it yourself, then apply again"
            )
        return {**result, "changed": False, "machine": there}

    def _there(self, known: dict[str, Any]) -> str:
        ran = self._execute_module(
            module_name="ansible.builtin.command",
            module_args={"argv": ["/bin/sh", "-c", machine.IDENTITY], "expand_argument_vars": False},
            task_vars=known,
        )
        if "stdout" not in ran:
            raise AnsibleActionFail(ended.answer(ran) or "the host gave no answer")
        return str(ran["stdout"])


def _here() -> str:
    return subprocess.run(["/bin/sh", "-c", machine.IDENTITY], capture_output=True, text=True, check=False).stdout
