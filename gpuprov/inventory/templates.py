"""Templates in inventory values, resolved per host as Ansible resolves them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError, AnsibleUndefinedVariable

from gpuprov.inventory.findings import Findings
from gpuprov.inventory.origin import origin_of
from gpuprov.inventory.reasons import cleaned
from gpuprov.inventory.source import Loader, Manager
from gpuprov.spec.problem import Path, dotted

_UNDEFINED = re.compile(r"'([^']+)' is undefined")


class Templates:
    """Resolves values with all the variables that Ansible gives a host (group_vars, host_vars, hostvars, groups, ...)."""

    def __init__(self, loader: Loader, manager: Manager, findings: Findings, extra: Mapping[str, Any]) -> None:
        # Late: most inventories have no templates, and these load Ansible's whole playbook machinery.
        from ansible.release import __version__ as version
        from ansible.template import Templar
        from ansible.vars.hostvars import HostVars
        from ansible.vars.manager import VariableManager

        self._findings = findings
        self._variables = VariableManager(loader=loader, inventory=manager, version_info={"full": version})
        self._variables._extra_vars = dict(extra)
        HostVars(inventory=manager, variable_manager=self._variables, loader=loader)
        self._templar = Templar(loader)

    def of(self, host: Any) -> HostTemplates:
        """The templates of one host; valid until the next host's are asked for."""
        self._templar.available_variables = self._variables.get_vars(host=host)
        return HostTemplates(str(host.name), self._templar, self._findings)


class HostTemplates:
    """Resolves values for one host; what cannot be resolved becomes a finding and None."""

    def __init__(self, host: str, templar: Any, findings: Findings) -> None:
        self._host, self._templar, self._findings = host, templar, findings

    def resolve(self, value: Any, path: Path) -> Any:
        """The value that a template at this path of `gpuprov` stands for."""
        return self.named(value, dotted(path) or "gpuprov", path)

    def named(self, value: Any, name: str, path: Path = ()) -> Any:
        """The value that a template stands for; `name` is what messages call it."""
        try:
            return self._templar.template(value)
        except AnsibleUndefinedVariable as error:
            found = _UNDEFINED.search(str(error))
            if found:
                message = f'{name} uses the variable "{found.group(1)}", which is not defined'
                hint = f'define it, or give a default: "{{{{ {found.group(1)} | default(...) }}}}"'
            else:
                message, hint = f"{name} cannot be resolved: {_why(error)}", "define it, or give a default"
            self._findings.add(message, origin_of(value), self._host, path, hint)
        except AnsibleError as error:
            self._findings.add(f"{name} cannot be resolved: {_why(error)}", origin_of(value), self._host, path)
        return None


def _why(error: AnsibleError) -> str:
    text = cleaned(str(error))
    return "its variables refer to each other in a circle" if "recursion depth" in text else text
