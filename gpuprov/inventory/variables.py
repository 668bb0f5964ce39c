"""The variables of a chain of groups and of a host, in Ansible's order of precedence: `gpuprov` layers and
`ansible_*`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.helpers import sort_groups
from ansible.plugins.loader import vars_loader
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path

from gpuprov.core.safe_parse import Tree, TreeView, Unreadable, parse_yaml
from gpuprov.inventory.findings import Findings
from gpuprov.inventory.loader import Loader
from gpuprov.inventory.origin import find_origin, is_template, is_vaulted, strip_tags
from gpuprov.inventory.reasons import convert_error
from gpuprov.inventory.source import Manager
from gpuprov.inventory.sources import is_host_list, show_path
from gpuprov.spec.connection import ADDRESSES, PORTS, USERS
from gpuprov.spec.model import SITE_VARIABLES, is_connection
from gpuprov.spec.problem import Origin, Problem
from gpuprov.spec.shown import show

STAGE = "task"


@dataclass
class Own:
    """Values from one place in the order of precedence: `gpuprov` mappings (or templates) in order, and connection
    variables."""

    layers: list[Any] = field(default_factory=list)
    connection: Tree = field(default_factory=dict)
    places: dict[str, Origin | None] = field(default_factory=dict)
    """Places of the variables that are judged beside the spec."""
    partial: bool = False
    """True if a file of variables could not be read: what depends on it cannot be judged."""
    variables: list[TreeView] = field(default_factory=list)
    """All variables of the place, in order, for use by templates."""

    def extend(self, other: Own) -> None:
        """Append the values of another place, which override these."""
        self.layers += other.layers
        self.connection |= other.connection
        self.places |= other.places
        self.partial = self.partial or other.partial
        self.variables += other.variables


class Variables:
    """Reads the variables from an inventory; each chain of groups once."""

    def __init__(
        self, loader: Loader, manager: Manager, findings: Findings, extra: TreeView, also: Iterable[str] = ()
    ) -> None:
        self._also = frozenset(also)
        self._loader, self._manager, self._findings = loader, manager, findings
        self._sources = manager._sources
        self._basedir = loader.get_basedir()
        self.builtin = [str(getattr(p, "ansible_name", "")) for p in list_active_plugins()] == [
            "ansible.builtin.host_group_vars"
        ]
        """True if Ansible's own group_vars/host_vars plugin is the only source of variables beside the inventory."""
        self._extra = self._of(extra)
        folders = list_variable_folders(self._sources, self._basedir)
        self._host_files = not self.builtin or any(os.path.isdir(os.path.join(f, "host_vars")) for f in folders)

    def of_groups(self, groups: list[Any]) -> Own:
        """Return the values of `all` and these groups, in the order of Ansible's `precedence` setting."""
        every = [self._manager.groups["all"]]
        rest = sort_groups([group for group in groups if group.name != "all"])
        steps: dict[str, Callable[[], Own]] = {
            "all_inventory": lambda: self._written("group", every),
            "groups_inventory": lambda: self._written("group", rest),
            "all_plugins_inventory": lambda: self._beside_inventory(every),
            "groups_plugins_inventory": lambda: self._beside_inventory(rest),
            "all_plugins_play": lambda: self._beside_play(every),
            "groups_plugins_play": lambda: self._beside_play(rest),
        }
        own = Own()
        for name in constants.VARIABLE_PRECEDENCE:
            if name in steps:
                own.extend(steps[name]())
        return own

    def of_host(self, host: Any) -> Own:
        """Return the host's own values: from the inventory, then from host_vars; and those that extra variables set for
        each host."""
        own = self._written("host", [host])
        if self._host_files:
            own.extend(self._beside_inventory([host]))
            own.extend(self._beside_play([host]))
        own.extend(self._extra)
        return own

    def _of(self, extra: TreeView) -> Own:
        """Return the values that extra variables set for every host."""
        own = Own(connection=self._connection(extra), places=dict.fromkeys(find_places(extra), Origin("--extra-vars")))
        if "gpuprov" in extra:
            self._layer(own, extra["gpuprov"], Origin("--extra-vars"))
        return own

    def _written(self, kind: str, entities: list[Any]) -> Own:
        own = Own()
        for entity in entities:
            layers = self._manager.data.layers.get((kind, entity.name), [])
            for place, value in layers:
                self._layer(own, value, place)
            last = entity.vars.get("gpuprov")
            if last is not None and not (layers and layers[-1][1] is last):
                self._layer(own, last, None)
            own.connection |= self._connection(entity.vars)
            own.places |= find_places(entity.vars)
            own.variables.append(entity.vars)
        return own

    def _beside_inventory(self, entities: list[Any]) -> Own:
        return self._files(lambda: get_vars_from_inventory_sources(self._loader, self._sources, entities, STAGE))

    def _beside_play(self, entities: list[Any]) -> Own:
        return self._files(lambda: get_vars_from_path(self._loader, self._basedir, entities, STAGE))

    def _files(self, read: Callable[[], TreeView]) -> Own:
        own = Own()
        self._loader.missed = False
        with self._loader.watch() as used:
            try:
                result = read()
            except AnsibleError as error:
                self._findings.take(convert_error(error, ""))
                return own
        own.partial = self._loader.missed
        last: Any = None
        for path, document in used:
            if isinstance(document, Mapping) and "gpuprov" in document:
                key = next(key for key in document if key == "gpuprov")
                last = document["gpuprov"]
                self._layer(own, last, find_origin(key) or Origin(show_path(path)))
        if "gpuprov" in result and result["gpuprov"] is not last:
            self._layer(own, result["gpuprov"], None)
        own.connection |= self._connection(result)
        own.places |= find_places(result)
        own.variables.append(result)
        return own

    def _connection(self, variables: TreeView) -> Tree:
        return {
            str.__str__(name): value
            for name, value in variables.items()
            if isinstance(name, str) and (is_connection(name) or name in self._also)
        }

    def _layer(self, own: Own, value: Any, place: Origin | None) -> None:
        if isinstance(value, Mapping) or is_template(value):
            own.layers.append(value)
            return
        text = "a vaulted text" if is_vaulted(value) else show(strip_tags(value))
        fix = "allowed: a mapping of blocks ({} for none)" + _suggest_mapping(value)
        problem = Problem(message=f"gpuprov is {text}", origin=find_origin(value) or place, fix=fix)
        if problem.origin not in self._loader.blanked:
            self._findings.take(problem, fatal=False)


def list_variable_folders(sources: Iterable[str], basedir: str) -> set[str]:
    """Return the folders in which Ansible looks for group_vars and host_vars."""
    return {s if os.path.isdir(s) else os.path.dirname(s) for s in sources if not is_host_list(s)} | {basedir}


_PLACED = SITE_VARIABLES | {*ADDRESSES, *PORTS, *USERS}


def find_places(variables: TreeView) -> dict[str, Origin | None]:
    """Return the places of the variables that are judged: of the value, or, if it has no place, of its name."""
    if _PLACED.isdisjoint(variables):
        return {}
    return {
        str.__str__(name): (None if isinstance(value, Mapping | list) else find_origin(value)) or find_origin(name)
        for name, value in variables.items()
        if isinstance(name, str) and name in _PLACED
    }


def list_active_plugins() -> list[Any]:
    """Return the variable plugins that Ansible uses: those it finds by itself, and those that its configuration
    enables."""
    plugins = {getattr(plugin, "ansible_name", ""): plugin for plugin in vars_loader.all()}
    return [p for p in plugins.values() if not getattr(p, "REQUIRES_ENABLED", False)] + [
        plugin for name in constants.VARIABLE_PLUGINS_ENABLED if name and (plugin := vars_loader.get(name)) is not None
    ]


def _suggest_mapping(value: Any) -> str:
    """Return how to turn blocks in a list, or in a text, into a mapping; empty for other values."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return "; take the dashes out"
    if isinstance(value, str) and not is_vaulted(value) and re.match(r"\s*[a-z_]+:(\s|\Z)", value):
        return "; take the quotes out, or the | before it"
    if isinstance(value, str) and not is_vaulted(value) and value.startswith("{"):  # INI's values are Python's or JSON
        try:
            return f"; write {json.dumps(parse_yaml(str.__str__(value)), ensure_ascii=False)}"
        except (Unreadable, TypeError):
            return ""
    return ""
