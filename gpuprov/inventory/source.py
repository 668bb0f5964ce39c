"""Ansible's loader, inventory data and manager, with a record of the files read, their contents and the errors."""

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader

from gpuprov.core import safe_parse
from gpuprov.core.safe_parse import Tree
from gpuprov.inventory import ranges
from gpuprov.inventory.data import Data
from gpuprov.inventory.enabled import judge_enabled, load_plugins, with_enabled
from gpuprov.inventory.origin import find_origin, hide_encrypted, hide_encrypted_text
from gpuprov.inventory.quiet import Heard
from gpuprov.inventory.reasons import convert_error
from gpuprov.inventory.scripts import limit_scripts, list_hosts_with_specs
from gpuprov.inventory.shape import check_names, find_misplaced, find_repeated, judge, list_groups
from gpuprov.inventory.sources import ONLY_FILES, is_host_list, show_path
from gpuprov.spec.problem import Origin, Problem
from gpuprov.spec.shown import show

YAML_NAMES = (".yaml", ".yml", ".json")


class Loader(DataLoader):  # type: ignore[misc]
    """A loader that reads each file once (Ansible's `auto` and `yaml` plugins each read it again) and records the
    plugins that failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: dict[str, Exception] = {}
        self.faults: list[Problem] = []
        self.opened: list[tuple[str, Any]] = []
        self.tolerant = False
        """True while variable files are read: a broken file counts as empty, so that the next ones are checked, too."""
        self.note: Callable[[object, object], None] = lambda _name, _value: None  # told of each variable in these, once
        self._documents: Tree = {}

    @property
    def read(self) -> Iterator[str]:
        """Yield the files that were read, except inventories."""
        return iter([*self._documents, *self.failed])

    def load_from_file(
        self,
        file_name: str,
        cache: str = "all",
        unsafe: bool = False,
        json_only: bool = False,
        trusted_as_template: bool = False,
    ) -> Any:
        """Load a file as Ansible does, from memory the second time. A plugin's own configuration is read exactly as
        Ansible does."""
        path = str(self.path_dwim(file_name))
        if path not in self._documents and path not in self.failed:
            try:
                document = super().load_from_file(path, "none", True, json_only, True)
                hide_encrypted(document)
                self._documents[path] = self._judged(path, document)
            except Exception as error:
                self.failed[path] = error
        if path in self.failed:
            if self.tolerant:
                return {}
            raise self.failed[path]
        document = self._documents[path]
        if isinstance(document, Mapping) and "plugin" in document:
            return super().load_from_file(path, cache, unsafe, json_only, trusted_as_template)
        self.opened.append((path, document))
        return document if unsafe or cache == "none" else copy.deepcopy(document)

    def load(self, data: str, *given: Any, **named: Any) -> Any:
        """Load a text as Ansible does, but within limits: its own readers of JSON and YAML have none."""
        text = str.__str__(data)
        try:
            safe_parse.check_json(text)
            safe_parse.check_yaml(text)
            safe_parse.check_unicode(text)
        except safe_parse.Unreadable as error:
            raise AnsibleError(error.message) from error
        return super().load(data, *given, **named)

    def get_text_file_contents(self, file_name: str, encoding: str | None = None) -> str:
        """Return the contents as Ansible does. Values of an encrypted file that is not YAML are hidden, too."""
        text: str = super().get_text_file_contents(file_name, encoding)
        if not str(file_name).endswith(YAML_NAMES):
            hide_encrypted_text(text)
        return text

    def _get_file_contents(self, file_name: str) -> tuple[bytes, bool]:
        """Return the contents as Ansible does, but only for a regular file of acceptable size: it would wait for a
        pipe, and read a device for ever."""
        path = str(self.path_dwim(file_name))
        try:
            safe_parse.judge_file(path)
        except safe_parse.Unreadable as error:
            raise AnsibleError(error.message) from error
        content: tuple[bytes, bool] = super()._get_file_contents(file_name)
        return content

    def _judged(self, path: str, document: Any) -> Any:
        if self.tolerant and isinstance(document, Mapping):
            faults = [
                *check_names(document, "variables", Origin(show_path(path))),
                *find_misplaced(document, "in a file of variables"),
            ]
            self.faults += faults
            for name, value in document.items():
                self.note(name, value)
            return {} if faults else document
        if not self.tolerant or not document:
            return document
        place = find_origin(document) or Origin(show_path(path))
        self.faults.append(
            Problem(
                message=f"a file of variables is {show(document)}", origin=place, hint="allowed: a mapping of variables"
            )
        )
        return {}

    def forget(self, path: str) -> None:
        """Release a document that is no longer needed (an inventory of thousands of hosts is large)."""
        self._documents.pop(path, None)
        self.failed.pop(path, None)
        self.opened.clear()

    @contextmanager
    def watch(self) -> Iterator[list[tuple[str, Any]]]:
        """Collect the files (with their contents) that are used in this context, in order."""
        used: list[tuple[str, Any]] = []
        self.opened = used
        yield used
        self.opened = []


class Manager(InventoryManager):  # type: ignore[misc]
    """An inventory manager that parses each source; a source that cannot be parsed is a problem, not a warning."""

    def __init__(self, loader: Loader, sources: list[str], heard: Heard) -> None:
        super().__init__(loader=loader, sources=sources, parse=False)
        self._inventory = Data()
        self.data = self._inventory
        self.files = loader
        self.heard = heard
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._configured = False
        self._only = self._source = ""
        self._above: list[str] = []
        self.scripted: dict[str, str] = {}
        ranges.bind_expansion()
        self.listed: set[str] = set()
        """Groups that a YAML inventory gives hosts or children, even empty."""
        self.plain = set(constants.INVENTORY_ENABLED) <= {"host_list", "script", "auto", "yaml", "ini", "toml"}
        """True if all sources so far are written-down hosts (no script, no plugin configuration)."""

    def parse_sources(self, cache: bool = False) -> None:
        """Parse all sources, unless no plugin that could read them is enabled."""
        wrong = judge_enabled()
        if wrong and wrong.severity == "error":
            self.problems.append(wrong)
            return
        self.warnings += filter(None, (wrong,))
        super().parse_sources(cache)

    def parse_source(self, source: str, cache: bool = False) -> bool:
        """Parse one source as Ansible does (files of a directory come here too). Return whether hosts or groups were
        read."""
        known = len(self.problems)
        if not is_host_list(source) and (what := safe_parse.explain_refusal(source)):
            message = f"this is {what}"
            self.problems.append(Problem(message=message, origin=Origin(show_path(source)), hint=ONLY_FILES))
            return False
        if os.path.isdir(source):
            parsed = self._folder(source)
            if not parsed and len(self.problems) == known:
                message = "no file in this folder is an inventory"
                self.problems.append(Problem(message=message, origin=Origin(show_path(source))))
            return parsed
        if is_host_list(source):
            return self._try(source)
        self._only, self._source = "", str(source)
        if os.access(source, os.X_OK):
            self.plain = False
            self._only = "script" if _is_script(source) else ""
        elif self._is_too_much(source) or self._is_faulty_yaml(source):
            return False
        start = len(self.heard.failures)
        parsed = self._try(source)
        if not parsed:
            error = select_relevant(source, dict(self.heard.failures[start:]), self._configured)
            refused = Problem(message="no inventory plugin can read this file", origin=Origin(show_path(source)))
            self.problems.append(with_enabled(convert_error(error, source) if error else refused))
        self.files.forget(str(source))
        return parsed

    def _folder(self, source: str) -> bool:
        real = os.path.realpath(source)
        if real in self._above:
            message = "this link leads back to a folder that it lies in"
            self.problems.append(Problem(message=message, origin=Origin(show_path(source)), hint="remove it"))
            return False
        self._above.append(real)
        try:
            return self._try(source)
        finally:
            self._above.pop()

    def _fetch_inventory_plugins(self) -> list[Any]:
        """Return all enabled plugins, or only the one for this source: the others would misread it."""
        plugins = load_plugins()
        for plugin in plugins:
            if getattr(plugin, "_load_name", "") in ("script", "ansible.builtin.script"):
                limit_scripts(
                    plugin, lambda out: self.scripted.update(dict.fromkeys(list_hosts_with_specs(out), self._source))
                )
        names = (self._only, f"ansible.builtin.{self._only}")
        return [plugin for plugin in plugins if getattr(plugin, "_load_name", "") in names] or plugins

    def _try(self, source: str) -> bool:
        try:
            return bool(super().parse_source(source, cache=False))
        except AnsibleError:  # raised where ansible.cfg makes an unparsed source fatal; the cause is in `heard`
            return False

    def _is_too_much(self, source: str) -> bool:
        """Return whether a file that is not YAML exceeds a limit, and report that; YAML is checked when it is read."""
        if source.endswith(YAML_NAMES):
            return False
        try:
            data = safe_parse.read_contents(source)
            if source.endswith(".toml"):
                safe_parse.check_toml(data.decode(errors="replace"))
            else:
                safe_parse.judge_lines(data)
        except safe_parse.Unreadable as error:
            self.problems.append(convert_error(error, source))
            return True
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            self.problems.append(Problem(message=message, origin=Origin(show_path(source))))
            return True
        self.problems += () if _is_script(source) else find_repeated(data, show_path(source))
        return False

    def _is_faulty_yaml(self, source: str) -> bool:
        """Return whether the file is a YAML inventory with faults, and report them, before Ansible acts on it."""
        named_yaml = source.endswith(YAML_NAMES)
        if not named_yaml and os.path.splitext(source)[1]:
            return False
        start = len(self.heard.warnings)
        try:
            document = self.files.load_from_file(source, cache="none", trusted_as_template=True)
        except Exception as error:
            self.files.forget(str(source))
            if named_yaml or "vault" in str(error) or isinstance(error.__cause__, safe_parse.Unreadable):
                self.problems.append(convert_error(error, source))
                return True
            del self.heard.warnings[start:]
            return False
        self._configured = isinstance(document, Mapping) and bool(document.get("plugin"))
        if self._configured:
            self.plain = False
            return False
        if not named_yaml and not isinstance(document, Mapping):
            return False
        self._only = "yaml"
        problems = list(judge(document, show_path(source)))
        faults = [problem for problem in problems if problem.severity == "error"]
        self.warnings += [problem for problem in problems if problem.severity == "warning"]
        self.listed.update(() if faults else list_groups(document))
        self.problems += faults
        return bool(faults)


def select_relevant(source: str, failures: dict[str, BaseException], configured: bool) -> BaseException | None:
    """Return the most informative failure: that of the plugin which the file is meant for."""
    with open(source, "rb") as file:
        head = file.read(4096).lstrip()
    if _is_script(source) or not failures.keys() - {"script"}:
        names = ["script"]
    elif source.endswith(YAML_NAMES):
        names = ["auto"] if configured else ["yaml"]
    elif source.endswith(".toml"):
        names = ["toml"]
    else:
        names = ["ini"] if b"\n[" in b"\n" + head or b"=" in head else ["yaml", "ini"]
    return next((failures[name] for name in names if name in failures), next(iter(failures.values()), None))


def _is_script(source: str) -> bool:
    with open(source, "rb") as file:
        return file.read(2) == b"#!"
