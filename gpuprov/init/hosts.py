"""State of hosts, as read by `export` -> a draft: hosts with one spec are a group."""

from collections.abc import Sequence

import msgspec

from gpuprov.core.errors import UnreachableError
from gpuprov.core.safe_parse import Tree
from gpuprov.export import Exported
from gpuprov.init.draft import HOST, Draft, Group, group_name


def draft(exported: Exported, requested: Sequence[str]) -> Draft:
    """Return a draft; blocks that all hosts have in common appear once, above the groups. Raises UnreachableError if no
    host could be read."""
    entries: dict[str, Tree] = exported.inventory["all"]["hosts"]
    if not entries:
        raise UnreachableError("\n".join(exported.unreachable) or "there is no host to read")
    new_draft = Draft(source=f"hosts as gpuprov export reads them ({len(entries)} of {len(requested)})", verb="verify")
    new_draft.notes = [*exported.notes, *(f"not read: {line.partition(chr(10))[0]}" for line in exported.unreachable)]
    specs = [entry["gpuprov"] for entry in entries.values()]
    new_draft.unreached = bool(exported.unreachable)
    new_draft.common = {
        name: value
        for name, value in specs[0].items()
        if name != "gpu" and all(spec.get(name) == value for spec in specs)
    }
    alike: dict[bytes, Group] = {}
    for name, entry in entries.items():
        if not HOST.match(name):
            new_draft.notes.append(f"{name[:80]!r} is not a name of a host")
            continue
        spec = {key: value for key, value in entry["gpuprov"].items() if key not in new_draft.common}
        variables = {key: value for key, value in entry.items() if key != "gpuprov"}
        key = msgspec.json.encode(spec, order="deterministic")
        if key not in alike:
            named = group_name(spec, "gpu", [group.name for group in alike.values()])
            alike[key] = Group(name=named, spec=spec)
        alike[key].hosts[name] = variables
    bare = [group for group in alike.values() if "nvidia_driver" not in {**new_draft.common, **group.spec}]
    for group in bare:
        group.notes.append(
            "nvidia_driver: there is none on these hosts; nvidia_driver: {} and persistence: {} ask for it"
        )
    new_draft.verb = "plan" if len(bare) == len(alike) else "verify"
    new_draft.common["reboot"] = "never"
    new_draft.groups = list(alike.values())
    return new_draft
