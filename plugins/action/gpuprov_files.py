"""The controller's part of gpuprov_files: options from a capability's desired state, and the text of files of the
role."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_host_code import missing

try:  # at the top: the strategy loads this file once, and its workers inherit what it imports
    from gpuprov.core.safe_parse import Tree
    from gpuprov.play.arguments import NOT_NEEDED, file_arguments, find_desired

    MISSING = ""
except ImportError as error:
    MISSING = str(error)


class ActionModule(ActionBase):  # type: ignore[misc]
    """Replace the name of each file by its text, and let the module do the rest."""

    def run(self, tmp: str | None = None, task_vars: Tree | None = None) -> Tree:
        result = super().run(tmp, task_vars)
        given = dict(self._task.args)
        if place := str(given.pop("capability", "")):
            if MISSING:
                raise AnsibleActionFail(missing.describe_missing_package(MISSING, task_vars or {}))
            desired = find_desired(task_vars or {}, place)
            given = {**file_arguments(desired, place.partition(".")[0]), **given}
            if not {name for name, value in given.items() if value}:
                return {**result, **NOT_NEEDED, "paths": [], "units": []}
        names = given.get("role_files") or {}
        given["role_files"] = {path: self._text(name) for path, name in names.items()}
        return dict(self._execute_module(module_args=given, task_vars=task_vars))

    def _text(self, name: str) -> str:
        return Path(self._find_needle("files", name)).read_text(encoding="utf-8")
