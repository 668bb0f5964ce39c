"""The deep merge of `gpuprov`, with the place of every value.

Mappings merge; lists and scalars replace; `false` replaces a block, and a later mapping replaces `false`. When a
template meets a mapping, it is resolved first, so that a block from a template merges like any block.

For each path, `origins` has the place of the value if it is text or a number, else of its key (Ansible does not record
the place of true, false and null; a block or list is located at its key).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleError

from gpuprov.core.safe_parse import Tree
from gpuprov.inventory.origin import find_origin, is_template, strip_tags
from gpuprov.spec.problem import Origin, Path

# Resolves a template at a path to its value.
Resolve = Callable[[Any, Path], Any]
# Called for a vaulted value that cannot be decrypted.
Refuse = Callable[[AnsibleError, Path], None]

_paths: dict[tuple[Path, str | int], Path] = {}


class Merge:
    """Values and origins of one host (or one chain of groups); `copy()` it before continuing with another."""

    def __init__(self, refuse: Refuse, resolve: Resolve | None = None) -> None:
        self.refuse = refuse
        self.values: Tree = {}
        self.origins: dict[Path, Origin] = {}
        self.templates = False
        self.resolve = resolve

    def copy(self) -> Merge:
        """Return a new merge that starts from this one and leaves it unchanged."""
        other = Merge(self.refuse, self.resolve)
        other.values, other.origins = dict(self.values), dict(self.origins)
        other.templates = self.templates
        return other

    def add(self, layer: Mapping[Any, Any]) -> None:
        """Merge one `gpuprov` mapping over the current values."""
        self._fill(self.values, (), layer, None)

    def finish(self) -> None:
        """Resolve the remaining templates."""
        self._settle(self.values, ())

    def _fill(self, box: dict[Any, Any], path: Path, layer: Mapping[Any, Any], above: Origin | None) -> None:
        for key, item in layer.items():
            self._put(box, strip_tags(key), _join(path, str(key)), item, find_origin(key) or above)

    def _put(self, box: dict[Any, Any], key: Any, path: Path, item: Any, place: Origin | None) -> None:
        old = box.get(key)
        if self.resolve is not None:
            if isinstance(item, Mapping) and is_template(old):
                box[key] = None
                self._put(box, key, path, self.resolve(old, path), self.origins.get(path))
                old = box[key]
            elif isinstance(old, dict) and is_template(item):
                item = self.resolve(item, path)
        if isinstance(item, Mapping):
            if not isinstance(old, dict):
                self._forget(path, old)
                old = {}
            target = box[key] = dict(old)
            self._mark(path, place)
            self._fill(target, path, item, place)
        else:
            self._forget(path, old)
            box[key] = self._new(item, path, place)

    def _new(self, item: Any, path: Path, place: Origin | None) -> Any:
        if isinstance(item, Mapping):
            fresh: dict[Any, Any] = {}
            self._mark(path, place)
            self._fill(fresh, path, item, place)
            return fresh
        if isinstance(item, list | tuple | set):
            self._mark(path, place)
            return [
                self._new(part, _join(path, n), find_value_origin(find_origin(part), place))
                for n, part in enumerate(item)
            ]
        self._mark(
            path, place if item is None or isinstance(item, bool) else find_value_origin(find_origin(item), place)
        )
        if is_template(item):
            self.templates = True
            return item
        try:
            return strip_tags(item)
        except AnsibleError as error:
            self.refuse(error, path)
            return None

    def _settle(self, box: Any, path: Path) -> None:
        for key, item in list(box.items() if isinstance(box, dict) else enumerate(box)):
            below = _join(path, key if isinstance(box, list) else str(key))
            if is_template(item) and self.resolve is not None:
                value = self.resolve(item, below)
                box[key] = self._new(value, below, self.origins.get(below))
            elif isinstance(item, dict | list) and item:
                box[key] = fresh = item.copy()
                self._settle(fresh, below)

    def _mark(self, path: Path, place: Origin | None) -> None:
        if place is not None:
            self.origins[path] = place

    def _forget(self, path: Path, old: Any) -> None:
        if isinstance(old, dict | list) and old:
            for known in [k for k in self.origins if len(k) > len(path) and k[: len(path)] == path]:
                del self.origins[known]


def find_value_origin(own: Origin | None, place: Origin | None) -> Origin | None:
    """Return the place of a value; for the result of a lookup, which has no place in a file, that of the template."""
    return place if own is None or (not own.line and place and place.line) else own


def _join(path: Path, part: str | int) -> Path:
    key = (path, part)
    joined = _paths.get(key)
    if joined is None:
        joined = _paths[key] = (*path, part if isinstance(part, int) else str.__str__(part))
    return joined
