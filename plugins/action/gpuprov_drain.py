"""Has users' processes leave the GPUs of a host: by the site's command, which runs there, or by kubectl, which runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_onhost import kubernetes_node


class ActionModule(ActionBase):  # type: ignore[misc]
    """Drained, where somebody holds a GPU; or given back."""

    _requires_connection = True
    _VALID_ARGS = frozenset({"state", "command", "node", "services", "always"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        asked, known = self._task.args, task_vars or {}
        command, node = str(asked.get("command") or ""), str(asked.get("node") or "")
        options = self._cluster(kubernetes_node.options_in, command)
        if asked["state"] == "returned":
            waits = self._task.check_mode or options is None or self._module("gpuprov_reason", {}, known)["reasons"]
            return {**result, "changed": not waits and self._cluster(kubernetes_node.resume, node)}
        given = {"state": "listed", "services": list(asked.get("services") or [])}
        if not command or not (asked.get("always") or self._module("gpuprov_clients", given, known)["clients"]):
            return {**result, "changed": False}
        if self._task.check_mode:
            return {**result, "changed": True}
        if options is not None:
            told = self._cluster(kubernetes_node.pause, node, options)
            return {**result, "changed": True, **({"warnings": [told]} if told else {})}
        self._module("ansible.builtin.command", {"_raw_params": command, "_uses_shell": True}, known)
        return {**result, "changed": True}

    def _cluster(self, work: Any, *words: Any) -> Any:
        try:
            return work(*words)
        except kubernetes_node.Failed as error:
            raise AnsibleActionFail(f"{error}. Fix: correct what it reports, and apply again") from error

    def _module(self, name: str, given: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(module_name=name, module_args=given, task_vars=known)
        if answer.get("failed") or answer.get("unreachable"):
            said = (str(answer.get("stderr") or "") or str(answer.get("stdout") or "")).strip().splitlines()
            told = f"{said[-1]} (exit status {answer.get('rc')})" if said and "rc" in answer else answer.get("msg")
            raise AnsibleActionFail(str(told or "the host gave no answer"))
        return answer
