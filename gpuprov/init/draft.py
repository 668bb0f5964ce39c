"""An inventory before it is written: groups of hosts, their specs, and what was not taken over."""

import re
from collections.abc import Iterable

import msgspec

from gpuprov.catalog.fabric import BOARD
from gpuprov.catalog.gpus import Gpu, find_gpu, list_meant
from gpuprov.core.safe_parse import Tree, TreeView
from gpuprov.inventory.names import fold_names

# A host's name as allowed in an inventory: no pattern, no range, no template.
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}\Z")
# The spec of every GPU host, if nothing is known about it.
BASE: TreeView = {"nouveau": {}, "nvidia_driver": {}, "persistence": {}}


class Group(msgspec.Struct, kw_only=True):
    """Hosts with one spec. `hosts`: their variables by name. Written above it: `about`, and `notes` of what was not
    taken over. `origins`: who published a value, by its path in the spec. `instance`: their instance type of a cloud,
    if known."""

    name: str
    spec: Tree = {}
    hosts: dict[str, Tree] = {}
    about: list[str] = []
    notes: list[str] = []
    origins: dict[tuple[str, ...], str] = {}
    instance: str = ""

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self.hosts)

    def shown(self) -> dict[str, Tree]:
        """Return the hosts in inventory form: those without variables as ranges."""
        plain = [name for name, variables in self.hosts.items() if not variables]
        ranges = fold_names(plain).split(", ") if plain else []
        return {
            **{name_range: {} for name_range in ranges},
            **{name: block for name, block in self.hosts.items() if block},
        }


class Draft(msgspec.Struct, kw_only=True):
    """`source`: its origin, in words. `common`: values of all hosts. `verb`: the next command. `unreached`: some hosts
    to be read were unreachable."""

    source: str
    common: Tree = {}
    groups: list[Group] = []
    notes: list[str] = []
    verb: str = "plan"
    unreached: bool = False


def add(draft: Draft, group: Group) -> None:
    """Add the group, or its hosts to a group with the same spec."""
    same = next((known for known in draft.groups if known.spec == group.spec and known.notes == group.notes), None)
    if same:
        same.hosts.update(group.hosts)
    else:
        draft.groups.append(group)


def gpu_block(words: str, count: int | None) -> tuple[Tree, list[str]]:
    """Return the blocks that follow from another tool's name for a model, and notes if it is not certain which GPU that
    is."""
    models = list_meant(words) if words else []
    if len(models) == 1:
        block = {"model": models[0].key, **({"count": count} if count else {})}
        return {"gpu": block, **(_add_board(models[0]) if count and count >= BOARD else {})}, []
    if not words:
        why = "nothing says which GPUs these hosts have"
    elif models:
        why = f'"{words}" may be {", ".join(model.key for model in models)}'
    else:
        why = f'"{words}" is in no row of gpuprov catalog gpus'
    choice = models[0].key if models else "MODEL"
    line = f"gpu: {{model: {choice}{f', count: {count}' if count else ''}}}"
    fix = f"lspci -nn | grep -i nvidia on one of them shows the PCI id, which may stand for the model: {line}"
    return {}, [f"gpu: {why}; {fix}"]


def _add_board(model: Gpu) -> Tree:
    """Return the blocks of a board: with NVSwitches it needs Fabric Manager."""
    # https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    return {"fabric_manager": {}} if model.fabric_manager.needed == "nvswitch-boards" else {}


def group_name(spec: TreeView, otherwise: str, taken: Iterable[str]) -> str:
    """Return a name for a group of hosts, after its GPU; valid in Ansible, and unique."""
    model = find_gpu(str(spec.get("gpu", {}).get("model", "")))
    plain = re.sub(r"[^a-z0-9]+", "_", (model.key if model else otherwise).lower()).strip("_") or "gpu"
    start = plain if plain[0].isalpha() else f"gpu_{plain}"
    used = {"all", "ungrouped", *taken}
    number = 1
    name = start
    while name in used:
        number += 1
        name = f"{start}_{number}"
    return name
