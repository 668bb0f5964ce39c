"""State of hosts, as read by `export` -> a draft: hosts with one spec are a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gpuprov.errors import UnreachableError
from gpuprov.export import Exported
from gpuprov.init.draft import HOST, Draft, Group, group_name


def draft(exported: Exported, asked: Sequence[str]) -> Draft:
    """Return a draft; blocks that all hosts have in common appear once, above the groups. Raises UnreachableError if no host could be
    read."""
    entries: dict[str, dict[str, Any]] = exported.inventory["all"]["hosts"]
    if not entries:
        raise UnreachableError("\n".join(exported.unreachable) or "there is no host to read")
    found = Draft(source=f"hosts as gpuprov export reads them ({len(entries)} of {len(asked)})", verb="verify")
    found.notes = [*exported.notes, *(f"not read: {line.partition(chr(10))[0]}" for line in exported.unreachable)]
    specs = [entry["gpuprov"] for entry in entries.values()]
    found.unreached = bool(exported.unreachable)
    found.common = {
        name: value
        for name, value in specs[0].items()
        if name != "gpu" and all(spec.get(name) == value for spec in specs)
    }
    alike: dict[bytes, Group] = {}
    for name, entry in entries.items():
        if not HOST.match(name):
            found.notes.append(f"{name[:80]!r} is no name of a host")
            continue
        spec = {key: value for key, value in entry["gpuprov"].items() if key not in found.common}
        variables = {key: value for key, value in entry.items() if key != "gpuprov"}
        key = msgspec.json.encode(spec, order="deterministic")
        if key not in alike:
            named = group_name(spec, "gpu", [group.name for group in alike.values()])
            alike[key] = Group(name=named, spec=spec)
        alike[key].hosts[name] = variables
    bare = [group for group in alike.values() if "nvidia_driver" not in {**found.common, **group.spec}]
    for group in bare:
        group.notes.append(
            "nvidia_driver: there is none on these hosts; nvidia_driver: {} and persistence: {} ask for it"
        )
    found.verb = "plan" if len(bare) == len(alike) else "verify"
    found.common["reboot"] = "never"
    found.groups = list(alike.values())
    return found
