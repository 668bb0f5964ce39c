"""Templates in inventory values, resolved per host as Ansible resolves them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError, AnsibleUndefinedVariable

from gpuprov.core.safe_parse import TreeView
from gpuprov.inventory.findings import Findings
from gpuprov.inventory.loader import Loader
from gpuprov.inventory.origin import find_origin, hide_looked_up, is_vaulted
from gpuprov.inventory.reads import list_all_names, list_templates
from gpuprov.inventory.reasons import clean_text
from gpuprov.inventory.source import Manager
from gpuprov.spec.problem import Path, format_path

_LOST = object()
_Values = tuple[tuple[str, object], ...]
# Results by template, by the variables that it reads, and by the hosts' own values of these within one chain of groups.
_Known = dict[object, dict[frozenset[str], dict[_Values, Any]]]
_UNDEFINED = re.compile(r"'([^']+)' is undefined")


class Templates:
    """Resolves values with all the variables that Ansible gives a host (group_vars, host_vars, hostvars, groups, ...).

    shares: True if all variables of a host are known, so that hosts with the same values share results.
    """

    def __init__(self, loader: Loader, manager: Manager, findings: Findings, extra: TreeView, *, shares: bool) -> None:
        # Late: most inventories have no templates, and these load Ansible's whole playbook machinery.
        from ansible.release import __version__ as version
        from ansible.template import Templar
        from ansible.vars.hostvars import HostVars
        from ansible.vars.manager import VariableManager

        hide_looked_up()
        self._findings = findings
        self._variables = VariableManager(loader=loader, inventory=manager, version_info={"full": version})
        self._variables._extra_vars = dict(extra)
        HostVars(inventory=manager, variable_manager=self._variables, loader=loader)
        self._templar = Templar(loader)
        self._known: dict[object, _Known] = {}
        # A fact cache on disk or in a database gives hosts variables that no source says.
        self._shares = shares and constants.CACHE_PLUGIN in ("memory", "ansible.builtin.memory")

    def of(self, host: Any, chain: object, own: TreeView) -> HostTemplates:
        """Return the templates of one host; valid until those of the next host are requested.

        chain: identifies all values from its groups. own: the variables that the host itself has.
        """
        host_values = {**own, "inventory_hostname": host.name, "inventory_hostname_short": host.name}
        known = self._known.setdefault(chain, {}) if self._shares else {}
        return HostTemplates(host, self, host_values, known)

    def variables(self, host: Any) -> TreeView:
        """Return all the variables that Ansible gives a host; `evaluate` uses them until the next call."""
        self._templar.available_variables = values = self._variables.get_vars(host=host)
        return values  # type: ignore[no-any-return]

    def evaluate(self, value: Any, name: str, path: Path, host: str) -> Any:
        """Return the value of a template with the variables requested last; _LOST, with a finding, if it has none."""
        try:
            return self._templar.template(value)
        except AnsibleUndefinedVariable as error:
            match = _UNDEFINED.search(str(error))
            if match:
                message = f'{name} uses the variable "{match.group(1)}", which is not defined'
                fix = f'define it, or give a default: "{{{{ {match.group(1)} | default(...) }}}}"'
            else:
                message, fix = f"{name} cannot be resolved: {explain_failure(error)}", "define it, or give a default"
            self._findings.add(message, find_origin(value), host, path, fix)
        except AnsibleError as error:
            self._findings.add(f"{name} cannot be resolved: {explain_failure(error)}", find_origin(value), host, path)
        return _LOST


class HostTemplates:
    """Resolves values for one host; a value that cannot be resolved becomes a finding and None."""

    def __init__(self, host: Any, templates: Templates, own: TreeView, known: _Known) -> None:
        self._host, self._templates, self._own, self._known = host, templates, own, known
        self._variables: TreeView | None = None

    def resolve(self, value: Any, path: Path) -> Any:
        """Return the value of a template at this path of `gpuprov`."""
        return self.named(value, format_path(path) or "gpuprov", path)

    def named(self, value: Any, name: str, path: Path = ()) -> Any:
        """Return the value of a template; `name` is its name in messages."""
        if not any(list_templates(value)):
            return value
        key = make_key(value)
        for read, results in self._known.get(key, {}).items():
            evaluated = results.get(self._given(read), _LOST)
            if evaluated is not _LOST:
                return evaluated
        if self._variables is None:
            self._variables = self._templates.variables(self._host)
        result = self._templates.evaluate(value, name, path, str(self._host.name))
        if result is _LOST:
            return None
        names = list_all_read(value, self._variables)
        if names is not None:
            self._known.setdefault(key, {}).setdefault(names, {})[self._given(names)] = result
        return result

    def _given(self, read: frozenset[str]) -> _Values:
        """Return the host's own values of variables, with their places: all others come from its groups."""
        return tuple((name, make_key(self._own[name])) for name in sorted(read) if name in self._own)


def list_all_read(value: Any, variables: TreeView) -> frozenset[str] | None:
    all_names: set[str] = set()
    for template in list_templates(value):
        names = list_all_names(template, variables)
        if names is None:
            return None
        all_names |= names
    return frozenset(all_names)


def make_key(value: Any) -> object:
    """Return a key that distinguishes values, including their places: a result may carry the place of its input."""
    if isinstance(value, Mapping):
        return "{}", tuple((make_key(name), make_key(item)) for name, item in value.items())
    if isinstance(value, list | tuple | set):
        return "[]", tuple(map(make_key, value))
    return (id(value),) if is_vaulted(value) else (type(value), str(value), find_origin(value))


def explain_failure(error: AnsibleError) -> str:
    text = clean_text(str(error))
    return "its variables refer to each other in a circle" if "recursion depth" in text else text
