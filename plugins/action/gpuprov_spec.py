"""Reads the specs of a play's hosts, if `gpuprov render` did not write the project.

Runs on the controller, with the Python package gpuprov beside ansible-core, before any connection to a host. The
inventory's sources are read by the code of `gpuprov check`, since Ansible itself keeps only the innermost `gpuprov` of
a host. A host gets the variables that `render` would have written for it. It ends with one error if a spec cannot be
read or is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible.module_utils
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_host_code import missing

try:  # at the top: the strategy loads this file once, and its workers inherit what it imports
    from gpuprov.core.errors import GpuprovError
    from gpuprov.core.safe_parse import Tree, TreeView
    from gpuprov.fleet.specs import Fleet
    from gpuprov.inventory import Play, reader  # noqa: F401 (the reader is what takes time to import)
    from gpuprov.render import plain

    MISSING = ""
except ImportError as error:
    MISSING = str(error)

# Fleets that this worker has read, for the items of one loop.
_fleets: list[Any] = []


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action: one reading for all hosts of a play (`host`), or the spec of this host with a role that is applied by
    itself (`role`)."""

    _requires_connection = False
    _VALID_ARGS = frozenset({"host", "role"})

    def run(self, tmp: str | None = None, task_vars: Tree | None = None) -> Tree:
        result = super().run(tmp, task_vars)
        known = task_vars or {}
        if MISSING:
            raise AnsibleActionFail(missing.describe_missing_package(MISSING, known))
        role, host = (
            str(self._task.args.get("role") or ""),
            str(self._task.args.get("host") or known["inventory_hostname"]),
        )
        sources = [str(source) for source in known.get("ansible_inventory_sources") or ()]
        play = Play(str(known["playbook_dir"]), load_extra_vars(self._loader), self._loader._vault.secrets or ())
        try:
            if role:
                variables = plain.read_host(sources, play, host, self._of(known), role)
            else:
                if not _fleets:
                    _fleets.append(self._fleet(sources, play, known))
                pair = next((pair for pair in _fleets[0].pairs if pair[0].name == host), None)
                if pair is None:
                    return {**result, "changed": False, "msg": f"{host} has no gpuprov spec: nothing is done there"}
                variables = plain.variables_of(*pair)
        except GpuprovError as error:
            fix = f". Fix: {error.fix}" if error.fix else ""
            raise AnsibleActionFail(f"{error.message}{fix}") from error
        return {**result, "changed": False, "add_host": {"host_name": host, "groups": [], "host_vars": variables}}

    def _fleet(self, sources: list[str], play: Play, known: Tree) -> Fleet:
        """Return the specs of all hosts of the play, whichever host the task runs for."""
        own = {"gpuprov": known["gpuprov"]} if "gpuprov" in known else {}
        every = known["hostvars"]
        if own and own["gpuprov"] == every[known["inventory_hostname"]].get("gpuprov"):
            own = {}  # the host's, and not of the play
        fleet = plain.read_fleet(
            sources,
            play,
            {str(name): {**self._of(every[name]), **self._of(own)} for name in known["ansible_play_hosts_all"]},
        )
        for warning in fleet.warnings:
            self._display.warning(str(warning))
        if fleet.unmanaged:
            self._display.warning(f"no gpuprov spec, and nothing is done there: {', '.join(fleet.unmanaged)}")
        return fleet

    def _of(self, variables: TreeView) -> Tree:
        """Return the relevant variables of a host, resolved."""
        return {
            name: plain.as_data(self._templar.template(variables[name])) for name in plain.names() if name in variables
        }
