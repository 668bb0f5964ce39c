"""The controller's part of gpuprov_step: steps that decide here do so in gpuprov/play; all others are the module's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_host_code import missing

try:  # at the top: the strategy loads this file once, and its workers inherit what it imports
    from gpuprov.core.errors import GpuprovError
    from gpuprov.core.safe_parse import Tree, TreeView
    from gpuprov.play import STEPS, StepFailed, run_step
    from gpuprov.play.arguments import NOT_NEEDED, task_arguments
    from gpuprov.play.host import Result

    MISSING = ""
except ImportError as error:
    MISSING = str(error)

PASSED = ("_connection", "_play_context", "_loader", "_templar", "_shared_loader_obj")


class ActionModule(ActionBase):  # type: ignore[misc]
    """Do the step here, or have the module do it."""

    _requires_connection = True
    _VALID_ARGS = frozenset({"name", "arguments", "capability", "task"})

    def run(self, tmp: str | None = None, task_vars: Tree | None = None) -> Tree:
        result = super().run(tmp, task_vars)
        name, arguments = str(self._task.args.get("name")), dict(self._task.args.get("arguments") or {})
        known = task_vars or {}
        if MISSING:
            raise AnsibleActionFail(missing.describe_missing_package(MISSING, known))
        if capability := str(self._task.args.get("capability") or ""):
            desired = task_arguments(known, capability, str(self._task.args.get("task") or name))
            if desired is None:
                return {**result, **NOT_NEEDED}
            arguments = {**desired, **arguments}
        host = Host(self, known)
        if name not in STEPS:
            return {**host.step(name, **arguments)}
        try:
            return {**result, **run_step(name, host, arguments)}
        except StepFailed as error:
            raise AnsibleActionFail(str(error)) from error
        except GpuprovError as error:
            raise AnsibleActionFail(f"{error.message}. Fix: {error.fix}") from error


class Host:
    """The host of a task: gpuprov.play.Host."""

    def __init__(self, action: ActionModule, variables: TreeView) -> None:
        self._action, self.variables = action, variables
        self.check_mode = bool(action._task.check_mode)

    @property
    def name(self) -> str:
        return str(self.variables.get("inventory_hostname", ""))

    def step(self, step: str, /, **arguments: Any) -> Result:
        return self._execute("gpuprov_step", {"name": step, "arguments": arguments})

    def shell(self, script: str) -> Result:
        argv = ["/bin/sh", "-c", script]
        return self._execute("ansible.builtin.command", {"argv": argv, "expand_argument_vars": False})

    def login(self, script: str) -> None:
        self._action._low_level_execute_command(script, sudoable=False)

    def _execute(self, name: str, arguments: TreeView) -> Result:
        answer: Result = self._action._execute_module(module_name=name, module_args=arguments, task_vars=self.variables)
        return answer

    def template(self, value: Any) -> Any:
        return self._action._templar.template(value)

    def find_file(self, name: str) -> str:
        return str(self._action._loader.get_real_file(self._action._find_needle("files", name)))

    @contextlib.contextmanager
    def send(self, path: str) -> Iterator[str]:
        action = self._action
        folder = action._make_tmp_path()
        try:
            remote_path = action._connection._shell.join_path(folder, "came")
            action._transfer_file(path, remote_path)
            action._fixup_perms2((folder, remote_path))
            yield remote_path
        finally:
            action._remove_tmp_path(folder, force=True)

    def fetch(self, path: str, place: str) -> Result:
        task = self._action._task.copy()
        task.args = {"src": path, "dest": place, "flat": True}
        given = {name.removeprefix("_"): getattr(self._action, name) for name in PASSED}
        action = self._action._shared_loader_obj.action_loader.get("ansible.builtin.fetch", task=task, **given)
        answer: Result = action.run(task_vars=self.variables)
        return answer
