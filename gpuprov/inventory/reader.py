"""The reader of inventory sources through Ansible. Imported only on a cache miss: importing Ansible is slow."""

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import msgspec
from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.helpers import sort_groups
from ansible.plugins.loader import init_plugin_loader
from ansible.plugins.vars import host_group_vars
from ansible.utils.collection_loader import AnsibleCollectionConfig

from gpuprov.core.safe_parse import Tree, TreeView
from gpuprov.inventory import extra
from gpuprov.inventory.duplicates import split_messages
from gpuprov.inventory.findings import Findings
from gpuprov.inventory.links import find_astray
from gpuprov.inventory.loader import Loader
from gpuprov.inventory.merge import Merge
from gpuprov.inventory.origin import find_origin, is_template, is_vaulted, strip_tags
from gpuprov.inventory.play import ReadOptions
from gpuprov.inventory.quiet import Heard, silence_ansible
from gpuprov.inventory.reasons import convert_error
from gpuprov.inventory.resolved import Resolved
from gpuprov.inventory.source import Manager
from gpuprov.inventory.sources import show_path
from gpuprov.inventory.templates import Templates
from gpuprov.inventory.unreached import find_unreached
from gpuprov.inventory.variables import Own, Variables, list_variable_folders
from gpuprov.inventory.vault import set_secrets, use_secrets
from gpuprov.spec.model import BLOCKS, RawHost
from gpuprov.spec.problem import Origin, Path, Problem, SpecError, format_path
from gpuprov.spec.shown import show


def read(sources: list[str], **options: Unpack[ReadOptions]) -> Resolved:
    """Return all hosts of the sources (absolute paths or host lists). Raises SpecError with every problem. See
    `load`."""
    with silence_ansible() as heard, disable_collection():
        for memory in (host_group_vars.FOUND, host_group_vars.NAK, host_group_vars.CANONICAL_PATHS):
            memory.clear()
        if AnsibleCollectionConfig.collection_finder is None:
            init_plugin_loader()
        try:
            return _read(sources, heard, options)
        except AnsibleError as error:  # not about one source: a setting, or a plugin that cannot be loaded
            raise SpecError([convert_error(error, sources[0])]) from error


def _read(sources: list[str], heard: Heard, options: ReadOptions) -> Resolved:
    findings, play = Findings(), options.get("play")
    loader = Loader()
    if play:
        use_secrets(loader, play.secrets)
    else:
        files, ask = options.get("vault_password_files", ()), options.get("ask_vault_pass", False)
        for problem in set_secrets(loader, files, ask):
            findings.take(problem)
    if findings:
        raise SpecError(findings.problems())
    if lost := list(find_astray(sources)):
        raise SpecError(lost)
    manager = Manager(loader, sources, heard)
    manager.parse_sources(cache=False)
    findings.take_all(manager.problems)
    findings.take_all(manager.mended, fatal=False)
    given = play.extra if play else extra.read(loader, options.get("extra_vars", ()), findings)
    if play or options.get("alone"):
        loader.set_basedir(play.folder if play else os.path.dirname(sources[0]))
    for name, value in given.items():
        manager.data.unread.note(name, None if name in BLOCKS else value)  # -e nvidia_driver=580 means the block
    loader.note = manager.data.unread.note
    loader.tolerant = True
    hosts = _Hosts(loader, manager, findings, given, options.get("also") or ())
    rows = hosts.all()
    loud, warnings = split_messages(heard, loader.patched)
    warnings += manager.warnings
    findings.take_all(loud, fatal=False)
    warnings += find_unreached(manager, loader, list_variable_folders(manager._sources, loader.get_basedir()), findings)
    if not rows and not findings:
        place = Origin(show_path(sources[0])) if len(sources) == 1 else None
        findings.take(Problem(message="the inventory has no hosts", origin=place, fix="add one under hosts"))
    if findings.fatal or not rows:
        raise SpecError(findings.problems())
    warnings += manager.data.unread.problems()
    resolved = _gather(manager, hosts, rows, warnings, tuple(given))
    if findings:
        return msgspec.structs.replace(resolved, problems=tuple(findings.problems()), cacheable=False)
    return resolved


@contextmanager
def disable_collection() -> Iterator[None]:
    """Disable garbage collection while tens of thousands of small objects are created that all stay alive."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@dataclass
class _Chain:
    """The values that a host gets from its groups; shared by all hosts with the same groups."""

    names: tuple[str, ...]
    variables: Own
    merge: Merge
    connection: Tree
    places: dict[str, Origin]


class _Hosts:
    """Conversion of Ansible's hosts to ours."""

    def __init__(
        self, loader: Loader, manager: Manager, findings: Findings, extra: TreeView, also: Sequence[str] = ()
    ) -> None:
        self.variables = Variables(loader, manager, findings, extra, also)
        self.computed = False
        """True if any value is templated or vaulted."""
        self._loader, self._manager, self._findings, self._extra = loader, manager, findings, extra
        self._chains: dict[tuple[int, ...], _Chain] = {}
        self._merged: dict[tuple[object, ...], Merge] = {}
        self._same: dict[tuple[object, ...], Merge] = {}
        self._templates: Templates | None = None

    def all(self) -> list[RawHost]:
        """Return all hosts in the order in which the sources name them."""
        hosts = list(self._manager.hosts.values())
        entries = [(host, self._chain(host), self.variables.of_host(host)) for host in hosts]
        for path, error in self._loader.failed.items():
            self._findings.take(convert_error(error, path), fatal=False)
        self._findings.take_all(self._loader.faults, fatal=False)
        self._findings.take_all(self._loader.mended, fatal=False)
        # Without a file of its variables, a host would have second, misleading problems.
        whole = [entry for entry in entries if not (entry[1].variables.partial or entry[2].partial)]
        usable = not self._findings.fatal
        return [self._host(host, chain, own, usable) for host, chain, own in whole]

    def _chain(self, host: Any) -> _Chain:
        key = tuple(map(id, host.groups))
        chain = self._chains.get(key)
        if chain is None:
            own = self.variables.of_groups(host.groups)
            names = tuple(str(group.name) for group in sort_groups(host.groups) if group.name != "all")
            merge = Merge(partial(self._refuse, ""))
            lay_layers(merge, own.layers)
            connection = {name: self._plain(name, value) for name, value in own.connection.items()}
            chain = self._chains[key] = _Chain(names, own, merge, connection, index_origins(own.places))
        return chain

    def _host(self, host: Any, chain: _Chain, own: Own, usable: bool) -> RawHost:
        merge = self._merge(host, chain, own)
        connection = chain.connection
        if own.connection:
            connection = connection | {name: self._plain(name, value) for name, value in own.connection.items()}
        templated = any(is_template(value) or isinstance(value, dict | list) for value in connection.values())
        if usable and (merge.templates or templated):
            if self._templates is None:
                shares = self.variables.builtin
                self._templates = Templates(self._loader, self._manager, self._findings, self._extra, shares=shares)
            variables = {name: value for layer in own.variables for name, value in layer.items()}
            resolver = self._templates.of(host, id(chain), variables)
            if merge.templates:
                self.computed = True
                merge = Merge(partial(self._refuse, str(host.name)), resolver.resolve)
                lay_layers(merge, [*chain.variables.layers, *own.layers], self._findings)
                merge.finish()
                merge = self._shared(merge)
            if templated:
                self.computed = True
                resolved = Merge(partial(self._refuse, str(host.name)))
                resolved.add({name: resolver.named(value, name) for name, value in connection.items()})
                connection = resolved.values
        return RawHost(
            name=str(host.name),
            groups=chain.names,
            values=merge.values,
            origins=merge.origins,
            connection=connection,
            places=index_origins({**chain.places, **own.places}) if own.places else chain.places,
        )

    def _merge(self, host: Any, chain: _Chain, own: Own) -> Merge:
        """Merge the values of a host. Hosts of one range share theirs: their own layers were written at one place."""
        if not own.layers:
            return chain.merge
        places = tuple(find_origin(layer) for layer in own.layers)
        key = (id(chain), places) if all(place and place.line for place in places) else None
        merge = self._merged.get(key) if key else None
        if merge is None:
            merge = chain.merge.copy()
            merge.refuse = partial(self._refuse, str(host.name))
            lay_layers(merge, own.layers)
            if key:
                self._merged[key] = merge
        return merge

    def _shared(self, merge: Merge) -> Merge:
        """Return an earlier host's merge with the same values and places, if there is one: equal merges are judged
        once."""
        return self._same.setdefault((repr(merge.values), *merge.origins.items()), merge)

    def _plain(self, name: str, value: Any) -> Any:
        if is_template(value) or isinstance(value, Mapping | list):
            return value
        if is_vaulted(value):
            self.computed = True
        try:
            return strip_tags(value)
        except AnsibleError as error:
            self._refuse("", error, (name,))
            return None

    def _refuse(self, host: str, error: AnsibleError, path: Path) -> None:
        problem = convert_error(error, "", format_path(path))
        self._findings.add(problem.message, problem.origin, host, path, problem.fix)


def index_origins(places: Mapping[str, Origin | None]) -> dict[str, Origin]:
    return {name: place for name, place in places.items() if place}


def lay_layers(merge: Merge, layers: list[Any], findings: Findings | None = None) -> None:
    for layer in layers:
        value = layer
        if not isinstance(layer, Mapping):  # the whole of `gpuprov` is a template
            if merge.resolve is None:
                merge.templates = True
                continue
            value = merge.resolve(layer, ())
        if isinstance(value, Mapping):
            merge.add(value)
        elif value is not None and findings is not None:
            fix = "allowed: a mapping of blocks ({} for none)"
            findings.add(f"gpuprov is a template that gives {show(strip_tags(value))}", find_origin(layer), fix=fix)


def _gather(
    manager: Manager, hosts: _Hosts, rows: Sequence[RawHost], warnings: Sequence[Problem], extra_names: tuple[str, ...]
) -> Resolved:
    """Return the hosts and groups that were read, and whether they may be cached."""
    plugin_paths = ("DEFAULT_VARS_PLUGIN_PATH", "DEFAULT_INVENTORY_PLUGIN_PATH")
    usual = all(constants.config.get_config_value_and_origin(name)[1] == "default" for name in plugin_paths)
    return Resolved(
        hosts=tuple(rows),
        groups=tuple(str(name) for name in manager.groups),
        warnings=tuple(warnings),
        cacheable=usual and manager.plain and hosts.variables.builtin and not hosts.computed,
        extra=extra_names,
        children={
            str(name): tuple(str(child.name) for child in group.child_groups)
            for name, group in manager.groups.items()
            if group.child_groups
        },
    )
