"""Modules that one host builds for others, where both meet: on the machine that runs Ansible.

The build host packs them, and the package is kept here; another host is judged by what the build host has, of this run or of an
earlier one whose package lies in the cache.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_onhost.driver import prebuilt

GIVEN = "nvidia_driver_given"
"""What the build host's own task of this action is registered as."""
JUDGED = "__nvidia_driver_prebuilt"
"""What act 1 registers on a host that is served."""

PASSED = ("_connection", "_play_context", "_loader", "_templar", "_shared_loader_obj")


class ActionModule(ActionBase):  # type: ignore[misc]
    """Packed on the build host; judged, then brought to another."""

    _requires_connection = True
    _VALID_ARGS = frozenset({"state", "driver", "builder", "platform", "sums"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        asked, known = self._task.args, task_vars or {}
        driver, builder = asked["driver"], str(asked["builder"])
        words = (asked["platform"], known["ansible_facts"]["architecture"], builder, driver["module"])
        cache = prebuilt.cache(os.environ, *map(str, words), prebuilt.wanted_version(driver))
        if asked["state"] == "packed":
            return {**result, **self._packed(driver, cache, known)}
        return {**result, "changed": False, **self._for(driver, builder, cache, known)}

    def _packed(self, driver: dict[str, Any], cache: str, known: dict[str, Any]) -> dict[str, Any]:
        if self._task.check_mode:
            return {"changed": False, "given": False}
        arguments = {**self._task.args, "sums": prebuilt.sound(cache)}
        answer: dict[str, Any] = self._execute_module(module_args=arguments, task_vars=known)
        if answer.get("failed") or answer.get("unreachable"):
            return answer
        for ending in ("deb", "json") if answer.get("changed") else ():
            fetched = self._fetch(f"{prebuilt.place_of(driver)}.{ending}", f"{cache}.{ending}", known)
            if fetched.get("failed") or fetched.get("unreachable"):
                return fetched
        return {"changed": bool(answer.get("changed")), "given": True}

    def _fetch(self, path: str, here: str, known: dict[str, Any]) -> dict[str, Any]:
        """Bring a file of root's here, and compare it."""
        task = self._task.copy()
        task.args = {"src": path, "dest": here, "flat": True}
        given = {name.removeprefix("_"): getattr(self, name) for name in PASSED}
        action = self._shared_loader_obj.action_loader.get("ansible.builtin.fetch", task=task, **given)
        answer: dict[str, Any] = action.run(task_vars=known)
        return answer

    def _for(self, driver: dict[str, Any], builder: str, cache: str, known: dict[str, Any]) -> dict[str, Any]:
        """What this host takes. A build host that is being rescued is still in ansible_play_hosts, one that failed in act 1 is not: it
        counts that it has packed."""
        host, checking, mine = str(known["inventory_hostname"]), bool(self._task.check_mode), prebuilt.known(cache)
        theirs, given = _of_builder(builder, known)
        judging = self._task.args["state"] == "judged"
        early = judging and bool(theirs)
        awaited = not judging and bool((known.get(JUDGED) or {}).get("awaited"))
        if early:
            mine = theirs
        elif (theirs or awaited) and not (given or checking):
            raise AnsibleActionFail(prebuilt.gone(builder, host, failed=True))
        elif theirs and not mine and not checking:
            raise AnsibleActionFail(prebuilt.gone(builder, host, failed=False))
        if not (checking and theirs and not early) and (why := prebuilt.problem(builder, host, driver, mine)):
            raise AnsibleActionFail(why)
        wanted = not early and prebuilt.lacks(driver, mine)
        place = prebuilt.place_of(driver)
        local = ["--reinstall", f"{place}.deb"] if wanted else []
        record = Path(f"{cache}.json").read_text(encoding="utf-8") if wanted and not checking else ""
        return {
            "wanted": wanted,
            "awaited": early,
            "package": f"{cache}.deb",
            "sha256": mine.get("sha256", ""),
            "place": f"{place}.deb",
            "record": {f"{place}.json": record} if record else {},
            "install": [*driver["install"], *(() if checking else local)],
            "stop": bool(driver["reload"] and (wanted or driver["moves"])),
            **prebuilt.trial(driver, local, untried=checking or not local),
        }


def _of_builder(builder: str, known: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """What the build host gets in this run, nothing where it takes no part; and whether it has packed."""
    if builder not in known["ansible_play_hosts"]:
        return {}, False
    variables = known["hostvars"][builder]
    judged = variables.get("gpuprov_judged") or {}
    other = (judged.get("desired") or {}).get("nvidia_driver") or {}
    if "module" not in other:
        return {}, False
    found = {"version": prebuilt.wanted_version(other), "flavour": other["flavour"], "kernels": other["kernels"]}
    return found, bool((variables.get(GIVEN) or {}).get("given"))
