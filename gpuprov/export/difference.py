"""Differences between the exported specs of two hosts: by capability, field by field."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuprov.capabilities import CAPABILITIES
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.core.safe_parse import Tree, TreeView
from gpuprov.core.sanitize import counted
from gpuprov.core.time_limits import HOST_LIMIT
from gpuprov.export import as_written, probes, spec_of
from gpuprov.export.defects import doubts
from gpuprov.facts.captures import RecordedFacts
from gpuprov.facts.captures import read as read_records
from gpuprov.facts.collect import gather
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts
from gpuprov.inventory import load
from gpuprov.spec.build import convert
from gpuprov.spec.model import RawHost

YAML = (".yaml", ".yml")


class Side(msgspec.Struct, frozen=True):
    """A host, or a file about one."""

    name: str
    spec: Tree
    # Capabilities whose state is unknown, with the reason.
    unread: dict[str, str] = {}
    doubts: tuple[str, ...] = ()


class Difference(msgspec.Struct, frozen=True):
    """A field that differs; None if a host does not have it, or has its default."""

    capability: str
    field: str
    left: Any
    right: Any


class Compared(msgspec.Struct, frozen=True):
    """Two sides and their differences."""

    left: str
    right: str
    differences: tuple[Difference, ...]
    # Capabilities that could not be compared, with the reason.
    unknown: dict[str, str]
    doubts: dict[str, tuple[str, ...]]


def compare(left: Side, right: Side) -> Compared:
    """Compare field by field, in apply order. Unknown capabilities of a side do not count as different, and are
    listed."""
    unknown = {
        name: "; ".join(f"{side.name}: {side.unread[name]}" for side in (left, right) if name in side.unread)
        for name in {**left.unread, **right.unread}
    }
    differences: list[Difference] = []
    for name in ("gpu", *(capability.name for capability in CAPABILITIES)):
        left_block, right_block = left.spec.get(name), right.spec.get(name)
        if name in unknown or left_block == right_block:
            continue
        if left_block is None or right_block is None:
            words = "not there", "there"
            differences.append(Difference(name, "", words[left_block is not None], words[right_block is not None]))
        left_fields, right_fields = dict(_flatten(left_block or {})), dict(_flatten(right_block or {}))
        for field in dict.fromkeys((*left_fields, *right_fields)):
            if left_fields.get(field) != right_fields.get(field):
                differences.append(Difference(name, field, left_fields.get(field), right_fields.get(field)))
    doubts = {side.name: side.doubts for side in (left, right) if side.doubts}
    return Compared(left.name, right.name, tuple(differences), unknown, doubts)


def _flatten(block: TreeView, above: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten `{"a": {"b": 1}}` to `a.b`; lists are compared as a whole."""
    for key, value in block.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def of_hosts(hosts: list[RawHost], *, timeout: float = HOST_LIMIT, pace: Pace | None = None) -> list[Side]:
    """Read the present state of the hosts. Raises UnreachableError if one cannot be read."""
    gathered = gather([(raw, probes()) for raw in hosts], timeout=timeout, pace=pace)
    sides = []
    for raw in hosts:
        facts = gathered[raw.name]
        if isinstance(facts, UnreachableError):
            raise facts
        sides.append(_build_side(raw.name, facts))
    return sides


def _build_side(name: str, facts: Facts) -> Side:
    spec, unread = spec_of(facts)
    reasons = (line.partition(": ") for line in unread)
    return Side(name, spec, {capability: why for capability, _, why in reasons}, tuple(doubts(facts, spec)))


def of_file(path: Path) -> Side:
    """Read a file: an inventory of one host with its spec (`gpuprov export` writes one), or a record. Raises
    GpuprovError."""
    if path.suffix not in YAML:
        records = read_records(path)
        if len(records) != 1:
            raise GpuprovError(f"{path} has records of {counted(len(records), 'host')}", "name the record of one host")
        return _build_side(f"{records[0].host or path.name} ({path.name})", RecordedFacts(records[0]))
    hosts = [raw for raw in load([str(path)]).hosts if raw.values]
    if len(hosts) != 1:
        raise GpuprovError(
            f"{path} has specs of {counted(len(hosts), 'host')}, and one can be compared",
            "export one: gpuprov export --limit HOST > FILE",
        )
    (raw,) = hosts
    spec: Tree = {}
    unread: dict[str, str] = {}
    if isinstance(gpu := raw.values.get("gpu"), dict):
        spec["gpu"] = gpu
    for capability in CAPABILITIES:
        value = raw.values.get(capability.name, False)
        if value is False:
            continue
        fragment, findings = convert(value, capability.fragment, (capability.name,))
        if findings:
            unread[capability.name] = str(findings[0][1])
        else:
            spec[capability.name] = as_written(fragment)
    return Side(f"{raw.name} ({path.name})", spec, unread)
