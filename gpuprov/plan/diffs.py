"""What a changed task of `--check --diff` says it would do to files, as changes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from gpuprov.capabilities.base import Change


def differences(result: Mapping[str, Any], task: str) -> list[Change]:
    """The changes of one task's result, loops included; `after` is the task where the diff is the text of a file."""
    found: list[Change] = []
    for item in result.get("results") or [result]:
        if not isinstance(item, dict) or not item.get("changed"):
            continue
        shown = item.get("diff") or []
        for one in shown if isinstance(shown, list) else [shown]:
            found += _changes(one, item, task)
    return found


def _changes(one: Any, item: Mapping[str, Any], task: str) -> Iterator[Change]:
    if not isinstance(one, dict):
        return
    name = _file(one, item) or task
    before, after = one.get("before", ""), one.get("after", "")
    if one.get("prepared"):
        yield Change(kind="file", name=name, after=task, diff=str(one["prepared"]).strip("\n"))
    elif isinstance(before, dict) and isinstance(after, dict):
        keys = [key for key in after if before.get(key) != after[key]]
        if keys:
            yield Change(kind="file", name=name, before=_state(before, keys), after=_state(after, keys))
    elif str(before) != str(after):
        lines = difflib.unified_diff(str(before).splitlines(), str(after).splitlines(), "before", "after", lineterm="")
        yield Change(kind="file", name=name, after=task, diff="\n".join(lines))


def _file(one: Mapping[str, Any], item: Mapping[str, Any]) -> str:
    """The file on the host. Ansible's header names a file of the controller where a template was rendered."""
    asked = item.get("invocation") or {}
    arguments = asked.get("module_args") or asked
    said = (arguments.get("dest"), arguments.get("path"), asked.get("dest"), item.get("dest"), item.get("path"))
    named = next((str(value) for value in said if value), "")
    return named or str(one.get("after_header") or one.get("before_header") or "").partition(" (")[0]


def _state(values: Mapping[str, Any], keys: list[str]) -> str:
    return ", ".join(f"{key} {values[key]}" for key in keys if key in values)
