"""The controller's part of gpuprov_packages: a capability's desired state becomes the module's options, or no call at
all."""

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
    from gpuprov.play.arguments import NOT_NEEDED, find_desired, package_arguments, task_arguments

    MISSING = ""
except ImportError as error:
    MISSING = str(error)


class ActionModule(ActionBase):  # type: ignore[misc]
    """Take the options from the desired state, and let the module do the rest."""

    def run(self, tmp: str | None = None, task_vars: Tree | None = None) -> Tree:
        result = super().run(tmp, task_vars)
        arguments, variables = dict(self._task.args), task_vars or {}
        if place := str(arguments.pop("capability", "")):
            if MISSING:
                raise AnsibleActionFail(missing.describe_missing_package(MISSING, variables))
            action, task = str(arguments.pop("action", "settle")), str(arguments.pop("task", ""))
            if task:
                desired = task_arguments(variables, place, task)
                settings = {} if desired is None else {"action": action, **desired}
            else:
                settings = package_arguments(find_desired(variables, place), action)
            if not settings:
                return {**result, **NOT_NEEDED, "changes": []}
            arguments = {**settings, **arguments}
        return dict(self._execute_module(module_args=arguments, task_vars=variables))
