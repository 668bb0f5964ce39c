"""Takes back what was begun for a step that failed, and fails with that step's reason.

Nothing that goes wrong meanwhile hides the reason: it is added to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_onhost import giving_up, missing

try:
    from gpuprov.shared import ended

    MISSING = ""
except ImportError as error:
    MISSING = str(error)
DRIVER = (
    ("gpuprov_driver_modules", "cleared", "the modules that were built aside were not taken away"),
    ("gpuprov_driver_loaded", "back", "the old driver was not loaded again"),
)


class ActionModule(ActionBase):  # type: ignore[misc]
    """The driver's own, then the services."""

    _requires_connection = True
    _VALID_ARGS = frozenset({"failure", "services", "driver", "pack"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        asked, known = self._task.args, task_vars or {}
        if MISSING:
            raise AnsibleActionFail(missing.package(MISSING, known))
        left = []
        for module, state, words in DRIVER if asked.get("driver") else ():
            more = {"pack": str(asked.get("pack") or "")} if state == "cleared" else {}
            answer = self._execute_module(module_name=module, module_args={"state": state, **more}, task_vars=known)
            if answer.get("failed"):
                left.append(f"{words}: {ended.answer(answer)}")
        given = {"state": "started", "services": list(asked["services"]), "tolerant": True}
        started = self._execute_module(module_name="gpuprov_clients", module_args=given, task_vars=known)
        if started.get("failed"):
            left.append(f"what was stopped for it was not started again: {ended.answer(started)}")
        told = giving_up.told(_answered(asked.get("failure") or {}), left, started.get("not_started") or [])
        return {**result, "failed": True, "changed": bool(started.get("started")), "msg": told}


def _answered(failure: dict[str, Any]) -> dict[str, Any]:
    """The result of the step, in which a module that gave no answer says how it ended."""
    items = [_answered(item) if isinstance(item, dict) else item for item in failure.get("results") or []]
    said = ended.answer(failure)
    alone = {} if said == failure.get("msg") else {"stderr": ""}  # what it said last is in it
    return {**failure, **alone, **({"msg": said} if said else {}), **({"results": items} if items else {})}
