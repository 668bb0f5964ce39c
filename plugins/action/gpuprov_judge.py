"""Judges a host from inside a play by gpuprov's own checks, and hands each role what it has to bring about.

Runs on the controller, with the Python package gpuprov beside ansible-core; of the host it runs one script that reads. Options:
`capabilities` (those of this run) and `moment`: `preflight` asks what must hold before anything is changed and fails with all that
does not; `now` only works out anew what the roles bring about, once act 2 or a reboot has changed the host.
What the roles get is `desired` of the result, by capability. Strings in it come from a host and are no templates.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

try:  # at the top: the strategy loads this file once, and its workers inherit what it imports
    from gpuprov.errors import GpuprovError
    from gpuprov.judge.judging import facts_of, judge, script
    from gpuprov.judge.variables import names, spec_of

    MISSING = ""
except ImportError as error:
    MISSING = str(error)


class ActionModule(ActionBase):  # type: ignore[misc]
    """One exec on the host, every check in memory."""

    _requires_connection = True
    _VALID_ARGS = frozenset({"capabilities", "moment"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        known = task_vars or {}
        if MISSING:
            raise AnsibleActionFail(
                f"the Python that runs Ansible has no package gpuprov ({MISSING}). Way out: pip install"
                f" gpuprov=={known.get('gpuprov_version', 'VERSION')} beside ansible-core, or run the play in an execution environment"
            )
        only, preflight = list(self._task.args["capabilities"]), self._task.args["moment"] == "preflight"
        host = str(known["inventory_hostname"])
        try:
            variables = {name: self._templar.template(known[name]) for name in names() if name in known}
            spec = spec_of(host, known.get("group_names", ()), variables)
            verdict = judge(
                spec, facts_of(self._read(script(spec, only, preflight=preflight), known)), only, preflight=preflight
            )
        except GpuprovError as error:
            raise AnsibleActionFail(f"{error.message}. Way out: {error.hint}") from error
        if verdict.refusals:
            raise AnsibleActionFail("; ".join(verdict.refusals))
        return {**result, "changed": False, "desired": verdict.desired}

    def _read(self, text: str, known: dict[str, Any]) -> str:
        """Both streams of the script on the host."""
        ran = self._execute_module(
            module_name="ansible.builtin.command",
            module_args={
                "argv": ["/bin/sh", "-s"],
                "stdin": text,
                "strip_empty_ends": False,
                "expand_argument_vars": False,
            },
            task_vars=known,
        )
        if "stdout" not in ran:
            raise AnsibleActionFail(str(ran.get("msg") or "the host gave no answer"))
        return f"{ran['stdout']}\n{ran.get('stderr', '')}"
