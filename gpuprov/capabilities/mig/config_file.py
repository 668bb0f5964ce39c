"""A mig-parted file (`version: v1`), or a ConfigMap with one, on the controller: one of its configurations, interpreted
as mig-parted does.

https://github.com/NVIDIA/mig-parted/blob/main/api/spec/v1/spec.go
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpuprov.core.sanitize import counted
from gpuprov.hardware.mig.parted import read_parted
from gpuprov.host_code.json_members import Json
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.host_code.mig.layout import PARTED_KEYS as ENTRY_KEYS
from gpuprov.spec.shown import show
from gpuprov.spec.unknown_keys import report_unknown_key

KEYS = ("version", "mig-configs")


class Trouble(NamedTuple):
    """An error, and the field of the spec that causes it."""

    field: str
    message: str
    fix: str


class Selected(NamedTuple):
    """The entries under the label, or the errors that keep them from being read."""

    entries: list[dict[str, Json]]
    troubles: tuple[Trouble, ...] = ()


def read(path: str, label: str) -> Selected:
    """Return the file's configuration of this label, or its only one. Never raises."""
    try:
        loaded = read_parted(path)
    except OSError as error:
        fix = "the path is one on this machine, where gpuprov runs"
        return _refuse("config_file", f"{path} cannot be read here: {error.strerror}", fix)
    except ValueError as error:
        return _refuse("config_file", f"{path} cannot be read: {error}", "correct the file")
    return _select(path, label, loaded)


def _refuse(field: str, message: str, fix: str) -> Selected:
    return Selected([], (Trouble(field, message, fix),))


def _select(path: str, label: str, loaded: object) -> Selected:
    if not isinstance(loaded, Mapping):
        return _refuse("config_file", f"{path} is not a mig-parted file", "it has version: v1 and mig-configs")
    if loaded.get("version") != "v1":
        fix = 'write version: v1, and the configurations under "mig-configs"'
        return _refuse("config_file", f"{path}: version is {show(loaded.get('version'))}, and not v1", fix)
    for key in loaded:
        if key not in KEYS:
            _, message, fix = report_unknown_key((), key, list(KEYS))
            return _refuse("config_file", f"{path}: {message}", fix)
    configs = loaded.get("mig-configs")
    if not isinstance(configs, Mapping) or not configs:
        return _refuse("config_file", f"{path}: mig-configs has no configuration", "name one: all-disabled: [...]")
    labels = [str(name) for name in configs]
    if not label and len(labels) > 1:
        return _refuse(
            "selected",
            f"{path} has {counted(len(labels), 'configuration')}, and none is selected",
            _format_named(labels),
        )
    if label and label not in labels:
        close = difflib.get_close_matches(label, labels, n=1, cutoff=0.6)
        return _refuse(
            "selected", f'{path} has no "{label}"', f'did you mean "{close[0]}"?' if close else _format_named(labels)
        )
    chosen = next(value for name, value in configs.items() if str(name) == (label or labels[0]))
    return _judge_selection(f"{path}: {label or labels[0]}", chosen)


def _format_named(labels: list[str]) -> str:
    return "selected: one of " + ", ".join(labels[:8]) + (f" and {len(labels) - 8} more" if len(labels) > 8 else "")


def _judge_selection(place: str, entries: object) -> Selected:
    if not isinstance(entries, list) or not entries:
        return _refuse("config_file", f"{place} has no entry", "a configuration is a list with at least one entry")
    troubles = []
    for number, entry in enumerate(entries):
        strange = [key for key in entry if key not in ENTRY_KEYS] if isinstance(entry, Mapping) else []
        if strange:
            _, message, fix = report_unknown_key((), strange[0], list(ENTRY_KEYS))
            troubles.append(Trouble("config_file", f"{place}[{number}]: {message}", fix))
            continue
        try:
            mig_layout.normalize_layout("enabled", [], [entry])
        except mig_layout.LayoutError as error:
            text = str(error).removeprefix("entry 0")
            troubles.append(Trouble("config_file", f"{place}[{number}]{text}", "correct the file"))
    troubles += () if troubles else _find_mode_conflicts(place, mig_layout.normalize_layout("enabled", [], entries))
    return Selected([] if troubles else entries, tuple(troubles))


def _find_mode_conflicts(place: str, entries: list[mig_layout.Entry]) -> Iterator[Trouble]:
    """Yield pairs of entries that give the same GPUs different modes, on any host."""
    for number, entry in enumerate(entries):
        for other in entries[:number]:
            same = entry.gpus is None or other.gpus is None or {*entry.gpus} & {*other.gpus}
            if same and sorted(entry.filters) == sorted(other.filters) and entry.enabled != other.enabled:
                message = f"{place}: {entry.place}: {other.place} gives the same GPUs another mode"
                yield Trouble("config_file", message, "one mode for each GPU")
