"""Variables of hosts in a play of a project that `render` did not write: the same as it would have written, from the
merged specs.

Values from Ansible itself have the highest precedence: a `gpuprov` of the play or of --extra-vars, and variables of
roles by their own names.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Tree, TreeView
from gpuprov.fleet.specs import Fleet, judge
from gpuprov.inventory import Play, load
from gpuprov.render.variables import fleet_variables, host_variables
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.spec.problem import Origin, Path, format_path

# The variable of a host that marks its variables as filled in by a play, and lists them.
READ = "gpuprov_read"


class Read(msgspec.Struct, frozen=True):
    """A play's data about a host."""

    # Its merged `gpuprov`.
    values: Tree
    # All variables that were set for the host.
    filled: Tree
    # The blocks of roles that only the play requests.
    roles: Tree = {}
    # The variables of roles that the play or the inventory sets by name.
    own: tuple[str, ...] = ()


def read_fleet(sources: Sequence[str], play: Play, hosts: Mapping[str, TreeView]) -> Fleet:
    """Return the specs of the hosts of a play. `hosts`: by name, the variables that Ansible gives each. Raises
    GpuprovError."""
    inventory = load(sources, play=play)
    raws = {raw.name: raw for raw in inventory.hosts}
    chosen = [with_variables(raws.get(name) or RawHost(name=name), known) for name, known in hosts.items()]
    return judge(chosen, inventory.warnings, whole=set(raws) <= set(hosts))


def read_host(sources: Sequence[str], play: Play, name: str, known: TreeView, role: str) -> Tree:
    """Return the variables of one host for a role that is applied by itself. `known`: the variables that Ansible gives
    it. Raises GpuprovError."""
    before = msgspec.convert(known[READ], Read) if READ in known else None
    raw = RawHost(name=name)  # one that no source names: a play has added it
    if before:
        raw = msgspec.structs.replace(raw, values=before.values)
    elif sources:
        raw = next((host for host in load(sources, play=play).hosts if host.name == name), raw)
    own = {
        key: value
        for key, value in known.items()
        if before is None or key in before.own or before.filled.get(key) != value
    }
    merged = with_variables(raw, own)
    roles = dict(before.roles) if before else {}
    declared = [
        capability.name for capability in CAPABILITIES if merged.values.get(capability.name, False) is not False
    ]
    if role not in declared:
        fields = _collect_role_variables(role, own)
        if declared and not fields:
            raise GpuprovError(
                f"{name}: the role {role} is applied, and the spec of this host has no {role} (it has: "
                f"{', '.join(declared)})",
                f"write {role}: {{}} into its gpuprov, or leave the role out for it",
            )
        roles[role] = fields
    spec = judge([_merge_over(merged, roles)], whole=False).pairs[0][1]
    return variables_of(raw, spec, roles, own)


def variables_of(raw: RawHost, spec: HostSpec, roles: TreeView | None = None, own: Iterable[str] = ()) -> Tree:
    """Return all variables of a host in a rendered project, and the data they come from."""
    filled = {**fleet_variables(), **host_variables(spec)}
    names = tuple(name for name in own if name not in ("gpuprov", READ))
    return {**filled, READ: msgspec.to_builtins(Read(raw.values, filled, dict(roles or {}), names))}


def with_variables(raw: RawHost, known: TreeView) -> RawHost:
    """Return the host with the additions of Ansible's own variables to its merged spec."""
    play = known.get("gpuprov")
    layered = _merge_over(raw, play) if isinstance(play, Mapping) else raw
    declared = [
        capability.name for capability in CAPABILITIES if isinstance(layered.values.get(capability.name), Mapping)
    ]
    layered = _merge_over(
        layered, {name: fields for name in declared if (fields := _collect_role_variables(name, known))}
    )
    return raw if layered.values == raw.values else layered


@cache
def names() -> frozenset[str]:
    """Return the names of the variables of a host that are used here."""
    return frozenset(
        {
            "gpuprov",
            READ,
            *(f"{capability.name}_{field}" for capability in CAPABILITIES for field in _fields(capability.name)),
        }
    )


def as_data(value: Any) -> Any:
    """Return values computed by Ansible without its tags."""
    from gpuprov.inventory.origin import strip_tags

    if isinstance(value, Mapping):
        return {strip_tags(key): as_data(item) for key, item in value.items()}
    return [as_data(item) for item in value] if isinstance(value, list | tuple) else strip_tags(value)


def _merge_over(raw: RawHost, layer: TreeView) -> RawHost:
    """Return the host with another `gpuprov` merged over its own."""
    from gpuprov.inventory.merge import Merge

    def refuse(error: Exception, path: Path) -> None:
        raise GpuprovError(
            f"{raw.name}: {format_path(path)} cannot be decrypted: {error}", "give its vault password"
        ) from error

    merge = Merge(refuse)
    merge.values, merge.origins = dict(raw.values), dict(raw.origins)
    merge.add(layer)
    here = Origin(f"a variable of the play, for {raw.name}")
    changed = {path: here for path, value in _list_leaves(layer) if _get_value_at(raw.values, path) != value}
    return msgspec.structs.replace(raw, values=merge.values, origins={**merge.origins, **changed})


def _list_leaves(layer: TreeView, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in layer.items():
        if isinstance(value, Mapping) and value:
            yield from _list_leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _get_value_at(values: Any, path: Path) -> Any:
    for part in path:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _collect_role_variables(name: str, known: TreeView) -> Tree:
    """Return the fields of a capability that are set as variables of its role."""
    return {field: known[f"{name}_{field}"] for field in _fields(name) if f"{name}_{field}" in known}


@cache
def _fields(name: str) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(BY_NAME[name].fragment))
