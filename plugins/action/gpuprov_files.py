"""The controller's part of gpuprov_files: reads the files of a role that go to the host as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    """Put the text of each in the place of its name, and let the module do the rest."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        names = self._task.args.get("role_files") or {}
        given = {**self._task.args, "role_files": {path: self._text(name) for path, name in names.items()}}
        answer: dict[str, Any] = self._execute_module(module_args=given, task_vars=task_vars)
        return answer

    def _text(self, name: str) -> str:
        return Path(self._find_needle("files", name)).read_text(encoding="utf-8")
