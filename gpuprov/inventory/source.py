"""Ansible's inventory manager, which records every problem of a source."""

import os
from collections.abc import Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory.manager import InventoryManager

from gpuprov.core import safe_parse
from gpuprov.inventory import mend, ranges
from gpuprov.inventory.data import Data
from gpuprov.inventory.enabled import judge_enabled, load_plugins, with_enabled
from gpuprov.inventory.loader import YAML_NAMES, Loader
from gpuprov.inventory.quiet import Heard
from gpuprov.inventory.reasons import convert_error
from gpuprov.inventory.scripts import limit_scripts, list_hosts_with_specs
from gpuprov.inventory.shape import find_repeated, judge, list_groups
from gpuprov.inventory.sources import ONLY_FILES, is_host_list, show_path
from gpuprov.spec.problem import Origin, Problem


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
        self.mended: list[Problem] = []
        """Mistakes in sources that were read without what is meant by them."""
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
            self.problems.append(Problem(message=message, origin=Origin(show_path(source)), fix=ONLY_FILES))
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
        parsed = self._try_mended(str(source))
        self.files.forget(str(source))
        return parsed

    def _try_mended(self, source: str) -> bool:
        """Parse a file; if its lines are an INI inventory's, without those that cannot be read."""
        mended: list[Problem] = []
        for _ in range(mend.ROUNDS):
            start = len(self.heard.failures)
            if self._try(source):
                self.mended += mended
                return True
            failures = dict(self.heard.failures[start:])
            error = select_relevant(source, failures, self._configured)
            refused = Problem(message="no inventory plugin can read this file", origin=Origin(show_path(source)))
            problem = convert_error(error, source) if error else refused
            problem = problem if mended else with_enabled(problem)
            text = mend.correct_line(problem, self._text(source)) if error and error is failures.get("ini") else ""
            if not text:
                self.problems += [*mended, problem]
                return False
            mended.append(problem)
            self.files.patched[source] = text
        self.problems += mended
        return False

    def _text(self, source: str) -> str:
        return self.files._get_file_contents(source)[0].decode(errors="replace")

    def _folder(self, source: str) -> bool:
        real = os.path.realpath(source)
        if real in self._above:
            message = "this link leads back to a folder that it lies in"
            self.problems.append(Problem(message=message, origin=Origin(show_path(source)), fix="remove it"))
            return False
        self._above.append(real)
        try:
            return self._try(source)
        finally:
            self._above.pop()

    def _fetch_inventory_plugins(self) -> list[Any]:
        """Return all enabled plugins, or only the one for this source: the others would misread it."""
        plugins = load_plugins(self._only)
        for plugin in plugins:
            if getattr(plugin, "_load_name", "") in ("script", "ansible.builtin.script"):
                limit_scripts(
                    plugin, lambda out: self.scripted.update(dict.fromkeys(list_hosts_with_specs(out), self._source))
                )
        return plugins

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
            self.mended += self.files.mended
            self.files.mended = []
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
        if faults:
            mend.mend_document(document)
        lost = any(problem.severity == "error" for problem in judge(document, show_path(source))) if faults else False
        self.listed.update(() if lost else list_groups(document))
        (self.problems if lost else self.mended).extend(faults)
        return lost


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
