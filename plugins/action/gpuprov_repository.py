"""The controller's part of gpuprov_repository: the key is read or fetched here, and judged before the host is
contacted."""

from __future__ import annotations

import os
from pathlib import Path

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_host_code import missing, repository_key
from ansible.module_utils.gpuprov_host_code.packages.model import Refused

try:  # at the top: the strategy loads this file once, and its workers inherit what it imports
    from gpuprov.core.safe_parse import Tree
    from gpuprov.play.arguments import NOT_NEEDED, find_desired

    MISSING = ""
except ImportError as error:
    MISSING = str(error)


class ActionModule(ActionBase):  # type: ignore[misc]
    """Add the key, and let the module do the rest."""

    def run(self, tmp: str | None = None, task_vars: Tree | None = None) -> Tree:
        result = super().run(tmp, task_vars)
        given = dict(self._task.args)
        if capability := str(given.pop("capability", "")):
            if MISSING:
                raise AnsibleActionFail(missing.describe_missing_package(MISSING, task_vars or {}))
            given["repository"] = find_desired(task_vars or {}, capability)["repository"]
            if not given["repository"]:
                return {**result, **NOT_NEEDED}
        block = dict(given.get("repository") or {})
        warnings: list[str] = []
        if block.get("url"):
            try:
                block["key"], warnings = repository_key.fetch_key(
                    {"of": "", **block}, os.environ, repository_key.fetch_over_https
                )
            except Refused as refused:
                return {"failed": True, "msg": str(refused)}
        arguments = {**given, "repository": block}
        answer = self._execute_module(module_args=arguments, task_vars=task_vars)
        return {**answer, "warnings": [*answer.get("warnings", []), *warnings]}
