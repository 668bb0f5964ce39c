"""Reaches a host before any module can run there: the user who answers, the Python that starts, the kind of host.

Runs on the controller, with the Python package gpuprov beside ansible-core, and decides by the same code as `verify`
and `plan` (gpuprov/rules/reach.py). One exec reads all of it; a mark of this run separates the answer from other output
of a login. A host that was reached joins the group gpuprov_reached.
"""

from __future__ import annotations

import base64
import secrets
import shlex
from pathlib import Path

import ansible.module_utils
from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.release import __version__ as ansible_version

# Ansible finds module_utils of ours for modules alone.
ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
from ansible.module_utils.gpuprov_host_code import missing

try:  # at the top: the strategy loads this file once, and its workers inherit what it imports
    from gpuprov.catalog.distributions import find_distribution, list_supported_names
    from gpuprov.core import ended
    from gpuprov.core.safe_parse import Tree
    from gpuprov.facts.probes.base import Output
    from gpuprov.facts.probes.host import system
    from gpuprov.host_code import bundle
    from gpuprov.rules import reach

    MISSING = ""
except ImportError as error:
    MISSING = str(error)
# For an ansible-playbook that was started by hand; gpuprov's own has this off.
INJECTED = (
    "Ansible takes what hosts say for variables, which win over those of the inventory: a host can have any file of "
    "this machine"
    " copied to it. Fix: inject_facts_as_vars = false in ansible.cfg, as in the rendered project's own "
    "(ANSIBLE_CONFIG names it)"
)
# A capability that accompanies those with kernel settings, and is no reason for a play by itself.
KERNEL = "kernel"
# The group of the hosts that the acts go over.
REACHED = "gpuprov_reached"


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action: one exec, and one judge."""

    _requires_connection = True
    _VALID_ARGS = frozenset[str]()

    def run(self, tmp: str | None = None, task_vars: Tree | None = None) -> Tree:
        result = super().run(tmp, task_vars)
        known = task_vars or {}
        if MISSING:
            raise AnsibleActionFail(missing.describe_missing_package(MISSING, known))
        if getattr(constants, "INJECT_FACTS_AS_VARS", False):
            self._display.warning(INJECTED)
        host, mark = known.get("inventory_hostname", ""), f"reach-{secrets.token_hex(8)}"
        if refusal := self._nothing(str(host), known):
            raise AnsibleActionFail(refusal)
        packages = str(self._templar.template(known.get("host_package_bundle") or ""))
        script = f"{bundle.VARIABLE}={shlex.quote(packages)}\n{bundle.REQUIRED}{reach.script(mark, self._named(known))}"
        reply = self._low_level_execute_command(f"echo {base64.b64encode(script.encode()).decode()} | base64 -d | sh")
        printed = f"{reply.get('stdout', '')}{reply.get('stderr', '')}"
        answer = reach.heard(str(reply.get("stdout", "")), mark)
        if bundle.MISSING in printed:
            raise AnsibleActionFail(f"{host}: {bundle.MISSING}. Fix: {bundle.FIX}")
        if refusal := reach.refusal(answer, ansible_version, printed, ended.connection(reply.get("rc"))):
            raise AnsibleActionFail(f"{host} {refusal}")
        if ended.is_misleading(str(reply.get("stdout", "")).partition(mark)[0]):
            raise AnsibleActionFail(f"{host}: {ended.NOISE}")
        python = reach.chosen(answer, ansible_version)
        environment = {"PATH": reach.path_of_bundle(packages, answer.path), "LC_ALL": "C.UTF-8", "LANGUAGE": ""}
        environment |= reach.of_bundle(packages)
        result |= {"platform": _find_platform(str(host), answer.release), "python": python, "environment": environment}
        return {**result, "changed": False, "add_group": REACHED, "parent_groups": ["all"]}

    def _nothing(self, host: str, known: Tree) -> str:
        """Return the reason for refusing a play that would do nothing for a host with a spec; "" if it does
        something."""
        if "gpuprov_capabilities" not in known or "gpuprov_only" in known:
            return ""
        declared = list(self._templar.template(known["gpuprov_capabilities"]))
        role = [str(self._templar.template(known["host_asked"]))] if "host_asked" in known else []
        selected = role or list(self._templar.template(known.get("gpuprov_selected") or declared))
        named = [name for name in selected if name != KERNEL] or selected
        if set(named) & set(declared):
            return ""
        what = ", ".join(named)
        return (
            f"{host}: nothing would be done, since its spec has no {what or 'capability'} (it has: "
            f"{', '.join(declared) or 'none'})."
            f" Fix: write a block {what or 'of one'} into its gpuprov, or leave the host out with --limit"
        )

    def _named(self, known: Tree) -> str:
        """Return the Python that the inventory or ansible.cfg names; "" if Ansible may choose."""
        configured = self._templar.template(known.get("ansible_python_interpreter") or "")
        named = str(configured or constants.config.get_config_value("INTERPRETER_PYTHON", variables=known) or "")
        return "" if named.startswith("auto") else named


def _find_platform(host: str, text: str) -> str:
    """Return the catalogue's key of the distribution that /etc/os-release names."""
    release = system.parse_os_release(Output(text))
    if known := find_distribution(release.id, release.version):
        return known.key
    raise AnsibleActionFail(
        f"{host} runs {release.name or release.id or 'what has no /etc/os-release'}; supported: "
        f"{', '.join(list_supported_names())}. Fix: take it out of the inventory, or reinstall it"
    )
