"""The controller's part of gpuprov_lock: the identity of this run, and whether the holder of a lock is a dead run of
this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import ansible.module_utils
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_host_code import locked, process

if TYPE_CHECKING:
    from gpuprov.core.safe_parse import Tree
    from gpuprov.host_code.fence import Owner, Taken

BY_HAND = 7200


class ActionModule(ActionBase):  # type: ignore[misc]
    """Take the lock, also from a dead run of this machine; or release it."""

    def run(self, tmp: str | None = None, task_vars: Tree | None = None) -> Tree:
        super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        host = str((task_vars or {}).get("inventory_hostname", ""))
        own_run: Owner = {**(arguments.get("run") or _by_hand()), "name": host}
        broken = [str(word) for word in _listed(arguments.get("break_lock"))]
        seen = ((task_vars or {}).get("gpuprov_seen") or {}).get(host)
        arguments |= {"run": own_run if seen is None else {**own_run, "seen": str(seen)}, "break_lock": broken}
        if self._task.check_mode:
            return {"changed": False, "skipped": True, "run": own_run}
        answer = self._execute_module(module_args=arguments, task_vars=task_vars)
        if answer.get("taken") is False and process.is_dead(answer.get("holder") or {}, own_run):
            answer = self._execute_module(
                module_args=arguments | {"stale": answer.get("text", "")}, task_vars=task_vars
            )
        if answer.get("failed") or answer.get("unreachable"):
            return dict(answer) | {"run": own_run}
        outcome = {key: answer[key] for key in ("changed", "taken", "released", "guard") if key in answer}
        if "token" in answer:
            own_run["token"] = answer["token"]
        if answer.get("taken") is False:
            what, fix = locked.explain_refusal(answer, broken, "apply with")
            outcome |= {"failed": True, "msg": f"{host} is {what}. Fix: {fix}"}
            outcome["gpuprov_locked"] = (
                bool(answer.get("holder")) or "passed" in answer
            )  # a damaged lock goes by nobody's end
        elif answer.get("over"):
            outcome["warnings"] = [f"{host}: {_taken_over(answer, own_run)}"]
        return outcome | {"run": own_run}


def _by_hand() -> Owner:
    """Return the ansible-playbook that runs this. While it works on other hosts it does not renew the lease, which is
    therefore as long as an act."""
    owner: Owner = process.describe("", "", process.find_topmost("ansible-playbook"))
    return {**owner, "lease": BY_HAND}


def _listed(value: object) -> list[object]:
    """Return one id or several; a value that names no lock (true, of older versions) breaks none."""
    return [item for item in (value if isinstance(value, list) else [value]) if item not in (None, True, False, "")]


def _taken_over(answer: Taken, own_run: Owner) -> str:
    holder = answer.get("holder") or {}
    user, host = holder.get("user", "somebody"), holder.get("host", "some machine")
    state = "is dead" if process.is_dead(holder, own_run) else "may still be alive"
    if answer.get("left") == 0 and state != "is dead":
        state = "is not heard of any more"
    return f"the run of {user} on {host} since {holder.get('since', 'some time')} {state}: its lock is taken over"
