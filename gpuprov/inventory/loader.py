"""Ansible's loader, with a record of the files read, their contents and the errors."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from msgspec import structs

from gpuprov.core import safe_parse
from gpuprov.core.safe_parse import Tree
from gpuprov.inventory import mend
from gpuprov.inventory.origin import find_origin, hide_encrypted, hide_encrypted_text
from gpuprov.inventory.reasons import convert_error, list_chain
from gpuprov.inventory.shape import check_names, find_misplaced
from gpuprov.inventory.sources import show_path
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
        self.mended: list[Problem] = []
        """Mistakes in files that were read without the values in question."""
        self.faulty: set[str] = set()
        self.missed = False
        """True once a file of variables was needed and could not be read."""
        self.blanked: set[Origin | None] = set()
        """Places of values that could not be read."""
        self.patched: dict[str, str] = {}
        """Texts to read in place of files that have mistakes."""
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
                document = self._load_mended(path, json_only)
                hide_encrypted(document)
                self._documents[path] = self._judged(path, document)
            except Exception as error:
                self.failed[path] = error
        if path in self.failed:
            if self.tolerant:
                self.missed = True
                return {}
            raise self.failed[path]
        document = self._documents[path]
        self.missed = self.missed or path in self.faulty
        if isinstance(document, Mapping) and "plugin" in document:
            return super().load_from_file(path, cache, unsafe, json_only, trusted_as_template)
        self.opened.append((path, document))
        return document if unsafe or cache == "none" else copy.deepcopy(document)

    def _load_mended(self, path: str, json_only: bool) -> Any:
        """Load a YAML file, without the values that cannot be read. Raises the first error if there are others."""
        mended: list[Problem] = []
        first: AnsibleError | None = None
        for _ in range(mend.ROUNDS):
            try:
                document = super().load_from_file(path, "none", True, json_only, True)
                self.mended += mended
                return document
            except AnsibleError as error:
                first = first or error
                if not path.endswith(YAML_NAMES):
                    break
                whole = " | ".join(str(cause) for cause in list_chain(error))
                blanked = mend.blank_value(whole, super().get_text_file_contents(path))
                if not blanked:
                    break
                place = Origin(show_path(path), blanked.line, blanked.column)
                mended.append(structs.replace(convert_error(error, path), origin=place))
                self.patched[path] = blanked.text
                self.blanked.add(place)
        assert first
        self.patched.pop(path, None)
        raise first

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
        return (self.patched[path].encode(), content[1]) if path in self.patched else content

    def _judged(self, path: str, document: Any) -> Any:
        if self.tolerant and isinstance(document, Mapping):
            faults = [
                *check_names(document, "variables", Origin(show_path(path))),
                *find_misplaced(document, "in a file of variables"),
            ]
            self.faults += faults
            self.faulty.update([path] if faults else [])
            for name, value in document.items():
                self.note(name, value)
            return {} if faults else document
        if not self.tolerant or not document:
            return document
        place = find_origin(document) or Origin(show_path(path))
        self.faulty.add(path)
        self.faults.append(
            Problem(
                message=f"a file of variables is {show(document)}", origin=place, fix="allowed: a mapping of variables"
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
