"""Has users' processes leave the GPUs of a host: by the site's command, which runs there, or by kubectl, which runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_onhost import missing

try:
    from gpuprov.drain import in_play, noted
    from gpuprov.errors import GpuprovError
    from gpuprov.shared import ended

    MISSING = ""
except ImportError as error:
    MISSING = str(error)


class ActionModule(ActionBase):  # type: ignore[misc]
    """Drained, where somebody holds a GPU; or given back."""

    _requires_connection = True
    _VALID_ARGS = frozenset({"state", "command", "node", "services", "guests", "always"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        if MISSING:
            raise AnsibleActionFail(missing.package(MISSING, task_vars or {}))
        try:
            return {**result, **self._done(task_vars or {})}
        except GpuprovError as error:
            raise AnsibleActionFail(f"{error.message}. Fix: {error.hint}") from error

    def _done(self, known: dict[str, Any]) -> dict[str, Any]:
        asked = self._task.args
        command, node, run = str(asked.get("command") or ""), str(asked.get("node") or ""), _run(known)
        cluster = in_play.asked(command, run)
        if asked["state"] == "returned":
            # gpuprov apply gives nodes back by itself, after its verify.
            if cluster is None or not run or self._task.check_mode or known.get("gpuprov_verified_later"):
                return {"changed": False}
            if self._module("gpuprov_reason", {}, known)["reasons"]:
                return {"changed": False}
            changed, why = in_play.give_back(cluster, node, run, green=not _half_changed(known))
            if changed:
                self._shell(noted.gone(), known)
            return {"changed": changed, **({"warnings": [why]} if why else {})}
        given = {
            "state": "listed",
            "services": list(asked.get("services") or []),
            "guests": asked.get("guests", False),
        }
        if not command or not (asked.get("always") or self._module("gpuprov_clients", given, known)["clients"]):
            return {"changed": False}
        if self._task.check_mode:
            return {"changed": True}
        if cluster is None:
            self._shell(command, known)
            return {"changed": True}
        host = str(known.get("inventory_hostname", ""))
        whose = self._shell(noted.written("kubernetes", run, host, over=False), known)
        try:
            told = in_play.take_out(cluster, node, run)
        except GpuprovError:
            if whose == noted.NEW and in_play.left(cluster, node, run) != run:
                self._shell(noted.gone(run), known)
            raise
        if whose == noted.THEIRS:  # of a run that has it no more
            self._shell(noted.written("kubernetes", run, host, over=True), known)
        return {"changed": True, **({"warnings": [f"node {node}: {told}"]} if told else {})}

    def _shell(self, script: str, known: dict[str, Any]) -> str:
        given = {"argv": ["/bin/sh", "-c", script]}
        return str(self._module("gpuprov_command", given, known).get("stdout") or "").strip()

    def _module(self, name: str, given: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(module_name=name, module_args=given, task_vars=known)
        if answer.get("failed") or answer.get("unreachable"):
            said = (str(answer.get("stderr") or "") or str(answer.get("stdout") or "")).strip().splitlines()
            told = f"{said[-1]} (exit status {answer.get('rc')})" if said and "rc" in answer else ended.answer(answer)
            raise AnsibleActionFail(str(told or "the host gave no answer"))
        return answer


def _run(known: dict[str, Any]) -> str:
    """The run that has the host's lock, by whose name the node is known to be its own."""
    owner = (known.get("host_lock") or {}).get("run") or known.get("gpuprov_run") or {}
    return str(owner.get("run") or "")


def _half_changed(known: dict[str, Any]) -> bool:
    """Whether an act failed that changes something."""
    return "host_failed" in known and int(known.get("gpuprov_act") or 2) > 1
