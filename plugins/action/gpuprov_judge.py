"""Judges a host from inside a play by gpuprov's own checks, and gives each role its desired state.

Runs on the controller, with the Python package gpuprov beside ansible-core; on the host it runs one script that only
reads. Options: `capabilities` (those of this run) and `moment`: `preflight` checks the conditions for changing
anything, and fails with all that are not met; `now` only recomputes the desired state of the roles, once act 2 or a
reboot has changed the host. In check mode nothing has changed it: the earlier result stays.

Between the two is `sources`. nvidia_driver's first stage may add a package source, and items that wait for it are
decided only then: its own version, and packages that a later role takes from there, or by that version. So each role
judges again, for itself; those after it are judged by the driver to come, which is in the earlier result, the variable
gpuprov_judged. The host is not read if no driver was resolved and nothing had waited (`later` of its desired state).
Items that still wait are refused; in check mode, which adds no source, they are reported.

The roles get `desired` of the result, by capability: that of `capabilities`, beside the earlier results of others.
`resources`, of `now`, are those that each of `capabilities` then has on the host, for the receipt, beside earlier
ones of others; `changing`, the settings among them that have another value yet. `driver` lets gpuprov_packages keep
packages of another driver away. Strings in it come from a host and are not templates.
"""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_host_code import lasting, missing, streams

try:  # at the top: the strategy loads this file once, and its workers inherit what it imports
    from gpuprov.core import ended
    from gpuprov.core.errors import GpuprovError
    from gpuprov.core.safe_parse import Tree
    from gpuprov.play.preflight.judging import DRIVER, driver, facts_of, judge, script, waiting, with_driver
    from gpuprov.play.preflight.variables import names, prepare, spec_of

    prepare()
    MISSING = ""
except ImportError as error:
    MISSING = str(error)


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action: one exec on the host, every check in memory."""

    _requires_connection = True
    _VALID_ARGS = frozenset({"capabilities", "moment"})

    def run(self, tmp: str | None = None, task_vars: Tree | None = None) -> Tree:
        result = super().run(tmp, task_vars)
        known = task_vars or {}
        if MISSING:
            raise AnsibleActionFail(missing.describe_missing_package(MISSING, known))
        only, moment = list(self._task.args["capabilities"]), self._task.args["moment"]
        last = known.get("gpuprov_judged") or {}
        judged = (last.get("desired") or {}) if moment != "preflight" else {}
        version = "" if DRIVER in only else str(judged.get(DRIVER, {}).get("version", ""))
        before = last.get("resources") or {}
        checking = bool(known.get("ansible_check_mode"))
        waited = waiting({name: judged[name] for name in only if name in judged})
        if (moment == "now" and checking and judged) or (moment == "sources" and not (version or waited)):
            earlier = {"desired": judged, "driver": driver(judged), "resources": before, "changing": {}}
            return {**result, "changed": False, **earlier}
        try:
            variables = {name: self._templar.template(known[name]) for name in names() if name in known}
            spec = with_driver(
                spec_of(str(known["inventory_hostname"]), known.get("group_names", ()), variables), version
            )
            preflight = moment != "now"
            run = self._templar.template(known["host_capabilities"]) if "host_capabilities" in known else None
            host_facts = facts_of(self._read(script(spec, only, preflight=preflight), known))
            drains = bool(known.get("gpuprov_drain_command"))
            image = known.get("gpuprov_act_last") == "bake"
            verdict = judge(spec, host_facts, only, preflight=preflight, run=run, drains=drains, image=image)
        except GpuprovError as error:
            raise AnsibleActionFail(f"{error.message}. Fix: {error.fix}") from error
        waited = waiting(verdict.desired) if moment == "sources" else {}
        problems = [f"{name}: {wait['problem']}" for name, wait in waited.items() if not checking]
        if refusals := verdict.refusals or problems:
            raise AnsibleActionFail("; ".join(refusals))
        message = "; ".join(wait["told"] for wait in waited.values())
        shown = {"msg": message, "diff": {"prepared": f"{message}\n"}} if message else {}
        desired = {**judged, **verdict.desired}
        judgement = {"desired": desired, "driver": driver(desired), "resources": {**before, **verdict.resources}}
        settings = {name: lasting.list_changing(lines) for name, lines in verdict.resources.items()}
        judgement["changing"] = {name: lines for name, lines in settings.items() if lines}
        return {**result, **shown, "changed": bool(waited), **judgement}

    def _read(self, text: str, known: Tree) -> bytes:
        """Return both streams of the script on the host, as bytes: a host's data need not be UTF-8, and a module's
        result must."""
        given = {"capabilities": [], "moment": self._task.args["moment"], "script": text}
        ran = self._execute_module(module_name="gpuprov_judge", module_args=given, task_vars=known)
        if "printed" not in ran:
            raise AnsibleActionFail(ended.answer(ran) or "the host gave no answer")
        printed: bytes = streams.unpack_streams(ran["printed"])
        return printed
