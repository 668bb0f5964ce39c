"""Reaches a host before any module can run there: the user who answers, the Python that starts, the kind of host.

Runs on the controller, with the Python package gpuprov beside ansible-core, and decides by the same code as `verify`
and `plan` (gpuprov/rules/reach.py). One exec reads all of it; a mark of this run separates the answer from other output
of a login. Then the facts are read, with the Python that starts. A host that was reached joins the group
gpuprov_reached.
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
    from gpuprov.catalog.platforms import find_family, find_platform, index_platforms
    from gpuprov.core import ended
    from gpuprov.core.safe_parse import Tree
    from gpuprov.host_code import bundle
    from gpuprov.rules import reach

    MISSING = ""
except ImportError as error:
    MISSING = str(error)
FACTS = ["!all", "!min", "distribution", "pkg_mgr", "platform", "python", "selinux", "service_mgr", "user", "virtual"]
# For an ansible-playbook that was started by hand; gpuprov's own has this off.
INJECTED = (
    "Ansible takes what hosts say for variables, which win over those of the inventory: a host can have any file of "
    "this machine"
    " copied to it. Fix: inject_facts_as_vars = false in ansible.cfg, as in the rendered project's own "
    "(ANSIBLE_CONFIG names it)"
)
UNNAMED = (
    "its distribution is not known: Ansible cannot read /etc/os-release there. Fix: have it be a file of UTF-8, as "
    "os-release(5) says (iconv -f UTF-8 /etc/os-release shows where it is not)"
)
# A capability that accompanies those with kernel settings, and is no reason for a play by itself.
KERNEL = "kernel"
# The group of the hosts that the acts go over.
REACHED = "gpuprov_reached"


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action: one exec, one judge, and Ansible's facts."""

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
        self._task.environment = [environment]
        with_python = {**known, "ansible_python_interpreter": python}
        read = self._execute_module(module_name="gpuprov_reach", module_args={"facts": FACTS}, task_vars=with_python)
        if "ansible_facts" not in read:
            return {**result, **read, "failed": True, "msg": read.get("msg") or f"{host} gave no facts"}
        facts = {name.removeprefix("ansible_"): value for name, value in read["ansible_facts"].items()}
        kind = _find_platform(str(host), facts)
        result |= {"platform": kind, "family": find_family(str(facts.get("os_family")))}
        result |= {"python": python, "environment": environment, "add_group": REACHED, "parent_groups": ["all"]}
        return {**result, "changed": False, "ansible_facts": read["ansible_facts"]}

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


def _find_platform(host: str, facts: Tree) -> str:
    if "distribution" not in facts:
        raise AnsibleActionFail(f"{host}: {UNNAMED}")
    distribution, version = str(facts["distribution"]), str(facts.get("distribution_version"))
    if kind := find_platform(distribution, version):
        return kind
    supported = ", ".join(name.replace("-", " ") for name in index_platforms())
    raise AnsibleActionFail(
        f"{host} runs {distribution} {version}; supported: {supported}. Fix: take it out of the inventory, or "
        "reinstall it"
    )
