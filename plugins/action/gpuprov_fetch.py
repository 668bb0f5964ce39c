"""The controller's part of gpuprov_fetch: a file beside the inventory is measured here, and brought along where the host lacks it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_onhost import files

HINT = "the right file, or the sha256 that sha256sum says of it, compared with what its publisher says"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Bring the file along, and let the module do the rest."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        asked = dict(self._task.args)
        named = str(asked.get("file") or "")
        source = self._measured(named, asked) if named else ""
        answer = self._module(asked, task_vars)
        if not answer.get("missing"):
            return answer
        folder = self._make_tmp_path()
        try:
            came = self._connection._shell.join_path(folder, "came")
            self._transfer_file(source, came)
            self._fixup_perms2((folder, came))
            return self._module({**asked, "came": came}, task_vars)
        finally:
            self._remove_tmp_path(folder, force=True)

    def _module(self, asked: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module("gpuprov_fetch", module_args=asked, task_vars=task_vars)
        return answer

    def _measured(self, named: str, asked: dict[str, Any]) -> str:
        """Where the file is on this machine. Another one is refused before the host hears of it."""
        of, wanted = asked.get("of", "file"), str(asked.get("sha256", "")).lower()
        try:
            source = str(self._loader.get_real_file(self._find_needle("files", named)))
            found = files.digest(source)
        except Exception as error:
            said = f"{of}: {named} cannot be read: {error}; nothing was changed. Fix: put it there, or correct the path"
            raise AnsibleActionFail(said) from error
        if found != wanted:
            told = f"{of}: {named}: its SHA-256 is {found}, and the spec says {wanted}; nothing was changed"
            raise AnsibleActionFail(f"{told}. Fix: {asked.get('hint') or HINT}")
        return source
