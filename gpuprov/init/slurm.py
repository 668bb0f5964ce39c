"""Hosts of Slurm, by its configuration, whose lists are as gpu[01-04,07],login1:
https://slurm.schedmd.com/slurm.conf.html#OPT_NodeName"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Tree, Unreadable
from gpuprov.core.sanitize import counted
from gpuprov.init.draft import BASE, HOST, Draft, Group, add, gpu_block, group_name
from gpuprov.inventory.names import fold_names
from gpuprov.inventory.ranges import MOST

# NodeName=big[001-300] Gres=gpu:nvidia_h100_80gb_hbm3:8
# Name=gpu Type=1g.10gb File=/dev/nvidia-caps/nvidia-cap66
PARAMETER = re.compile(r"""\b(\w++)\s*+\+?=\s*+("[^"]*"|\S+)""")
# An item `gpu:a100:4(S:0-1)` of a list: https://slurm.schedmd.com/slurm.conf.html#OPT_Gres
GRES = re.compile(r"(\w+)((?::[^:,()\s]+)*)(?:\([^)]{0,1000}\))?")
# A MIG profile in a type: the count is of instances.
PROFILE = re.compile(r"\d+[gc]\.\d+gb", re.IGNORECASE)
# Parameters of gres.conf that Slurm itself needs, and a spec does not have.
LEFT = {"cores": "Cores", "cpus": "CPUs", "links": "Links", "flags": "Flags", "uniqueid": "UniqueId"}


class Node(msgspec.Struct):
    """Data about a node from the files."""

    address: str = ""
    # GPUs by type of gres.conf.
    devices: dict[str, int] = {}
    # The same of slurm.conf's Gres.
    scheduled: dict[str, int] = {}
    mig: bool = False


class Told(msgspec.Struct):
    """Everything read so far."""

    nodes: dict[str, Node] = {}
    # GPUs of lines of gres.conf that name no node.
    everywhere: Node = msgspec.field(default_factory=Node)
    notes: list[str] = []
    left: set[str] = set()
    detects: bool = False


def draft(paths: Sequence[Path]) -> Draft:
    """Return the nodes with GPUs, in groups of one type and count. Raises GpuprovError if no file names a node with
    GPUs."""
    cluster = Told()
    for path in paths:
        default: dict[str, str] = {}
        for number, line in _parse_lines(_read_text(path)):
            _read_line(cluster, f"{path.name}:{number}", line, default)
    names = ", ".join(path.name for path in paths)
    having = {name: node for name, node in cluster.nodes.items() if _count_gpus(cluster, node) or node.mig}
    if not having:
        raise GpuprovError(f"{names}: no node with a GPU is named", _explain_no_node(cluster))
    if cluster.left:
        cluster.notes.append(
            f"{', '.join(sorted(cluster.left))}: for Slurm alone; `gpuprov topology` shows what is wired to what"
        )
    if others := len(cluster.nodes) - len(having):
        cluster.notes.append(f"{others} node{'s' if others != 1 else ''} without GPUs")
    new_draft = Draft(source=names, common={**BASE, "reboot": "never"}, notes=cluster.notes)
    for (types, count), members in _group_alike(cluster, having).items():
        add(new_draft, _make_group(new_draft, types, count, members))
    return new_draft


def _explain_no_node(cluster: Told) -> str:
    if cluster.everywhere.devices or cluster.detects:
        return "this gres.conf holds for every node: give slurm.conf too, which names them (--from-slurm slurm.conf)"
    return "allowed: NodeName=... with Gres=gpu:... (slurm.conf) or Name=gpu (gres.conf)"


def _read_text(path: Path) -> str:
    try:
        return safe_parse.read_contents(str(path)).decode("utf-8", "replace")
    except safe_parse.Unreadable as error:
        raise GpuprovError(f"{path}: {error.message}", "name gres.conf or slurm.conf") from error
    except OSError as error:
        raise GpuprovError(f"{path} cannot be read: {error.strerror}", "name gres.conf or slurm.conf") from error


def _parse_lines(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield parameters of each line that has any, with its number; comments are removed, and a line ending in a
    backslash continues in the next."""
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        whole += re.split(r"(?<!\\)#", line)[0].rstrip()
        if whole.endswith("\\"):
            whole = whole[:-1] + " "
            continue
        if re.match(r"\s*include\s", whole, re.IGNORECASE):
            yield first, {"include": whole.split(None, 1)[-1]}
        elif parameters := {key.lower(): value.strip('"') for key, value in PARAMETER.findall(whole)}:
            yield first, parameters
        whole, first = "", 0


def _read_line(cluster: Told, place: str, line: dict[str, str], default: dict[str, str]) -> None:
    if "include" in line:
        cluster.notes.append(f"{place}: Include {line['include']}; give that file too, with --from-slurm")
    if line.get("autodetect", "off").lower() != "off":
        cluster.detects = True
        cluster.notes.append(
            f"{place}: AutoDetect={line['autodetect']}: Slurm asks each host, and its answer stands in no file"
        )
    if "name" in line:
        _read_gres_line(cluster, place, line)
    elif line.get("nodename", "").upper() == "DEFAULT":
        default.update(line)
    elif "nodename" in line:
        _read_slurm_line(cluster, place, {**default, **line})


def _read_gres_line(cluster: Told, place: str, line: dict[str, str]) -> None:
    """Read a line of gres.conf: GPUs of nodes, or of every node."""
    if line["name"].lower() != "gpu":
        cluster.notes.append(f"{place}: Name={line['name']}")
        return
    cluster.left |= {name for key, name in LEFT.items() if key in line}
    files = _expand_names(cluster, place, line["file"]) if "file" in line else []
    count = safe_parse.parse_whole(line["count"]) if "count" in line else len(files) or 1
    nodes = _select_nodes(cluster, place, line["nodename"]) if "nodename" in line else [cluster.everywhere]
    kind = line.get("type", "")
    for node in nodes:
        if "multiplefiles" in line or PROFILE.search(kind):
            node.mig = True
        else:
            node.devices = {**node.devices, kind: node.devices.get(kind, 0) + (count or 0)}


def _read_slurm_line(cluster: Told, place: str, line: dict[str, str]) -> None:
    """Read a line of slurm.conf: nodes, with their addresses and resources."""
    nodes = _select_nodes(cluster, place, line["nodename"])
    addresses = _expand_names(cluster, place, line["nodeaddr"]) if "nodeaddr" in line else []
    scheduled: dict[str, int] = {}
    mig = False
    for name, rest in GRES.findall(line.get("gres", "")):
        words = [word for word in rest.split(":")[1:] if word != "no_consume"]
        count = safe_parse.parse_whole(words.pop()) if words and safe_parse.is_whole(words[-1]) else 1
        if name.lower() != "gpu":
            continue
        mig |= any(PROFILE.search(word) for word in words)
        kind = ":".join(words)
        scheduled[kind] = scheduled.get(kind, 0) + (count or 0)
    for number, node in enumerate(nodes):
        node.scheduled, node.mig = ({}, True) if mig else (scheduled, node.mig)
        if len(addresses) == len(nodes) and HOST.match(addresses[number]):
            node.address = addresses[number]


def _select_nodes(cluster: Told, place: str, text: str) -> list[Node]:
    names = _expand_names(cluster, place, text)
    cluster.notes += [f"{place}: {name[:80]!r} is not a name of a host" for name in names if not HOST.match(name)]
    return [cluster.nodes.setdefault(name, Node()) for name in names if HOST.match(name)]


def _expand_names(cluster: Told, place: str, text: str) -> list[str]:
    try:
        return expanded(text)
    except safe_parse.Unreadable as error:
        cluster.notes.append(f"{place}: {error.message}")
        return []


def _count_gpus(cluster: Told, node: Node) -> dict[str, int]:
    """Return the GPUs of a node by type: those that Slurm schedules, by the types of gres.conf if slurm.conf has
    none."""
    devices = node.devices or cluster.everywhere.devices
    if set(node.scheduled) == {""} and len(devices) == 1:
        return dict.fromkeys(devices, node.scheduled[""])
    return node.scheduled or node.devices


Alike = dict[tuple[tuple[str, ...], int], dict[str, Node]]


def _group_alike(cluster: Told, nodes: dict[str, Node]) -> Alike:
    """Group nodes by the types and the number of their GPUs; a number of 0 means unknown."""
    groups: Alike = {}
    differ: dict[tuple[int, int], list[str]] = {}
    for name, node in nodes.items():
        gpus = _count_gpus(cluster, node)
        present, given = sum((node.devices or cluster.everywhere.devices).values()), sum(node.scheduled.values())
        if present and given and present != given:
            differ.setdefault((present, given), []).append(name)
        count = 0 if node.mig else sum(gpus.values())
        groups.setdefault((tuple(sorted(gpus)), count), {})[name] = node
    for (present, given), names in differ.items():
        cluster.notes.append(
            f"{fold_names(names)}: gres.conf has {present} GPUs, slurm.conf {given}; slurm.conf's number is taken"
        )
    return groups


def _make_group(draft: Draft, types: tuple[str, ...], count: int, members: dict[str, Node]) -> Group:
    spec: Tree = {}
    if len(types) > 1:
        notes = [f"gpu: {counted(count, 'GPU')} of several types ({', '.join(types)}); a spec names one model"]
    else:
        spec, notes = gpu_block(types[0] if types else "", count if 0 < count <= 64 else None)
    if not count:
        notes.append("MIG: the files count instances, and not GPUs; gpuprov export reads the layout of a host")
    name = group_name(spec, "_".join(types) or "gpu", [group.name for group in draft.groups])
    hosts = {
        host: {"ansible_host": node.address} if node.address not in ("", host) else {} for host, node in members.items()
    }
    return Group(name=name, spec=spec, hosts=hosts, notes=notes)


# Maximum number of brackets in one name; racks, chassis and nodes.
MOST_RANGES = 3
PART = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def expanded(text: str) -> list[str]:
    """Return the names in their order. Raises Unreadable for text that is not a list, or has too many names."""
    if set("[]") & set(BRACKETS.sub("", text)):
        raise Unreadable(f"{text[:80]!r}: a bracket without the other", "gpu[01-04,07]")
    names: list[str] = []
    for part in PART.findall(text):
        pieces = BRACKETS.split(part)
        if len(pieces) > 2 * MOST_RANGES + 1:
            raise Unreadable(f"{part[:80]!r} has too many brackets", f"{MOST_RANGES}")
        made = [""]
        for number, piece in enumerate(pieces):
            choices = _expand_numbers(piece) if number % 2 else [piece]
            if len(made) * len(choices) + len(names) > MOST:
                raise Unreadable(f"{part[:80]!r} means too many names", f"{MOST}")
            made = [start + end for start in made for end in choices]
        names += made
    return list(dict.fromkeys(name for name in names if name))


def _expand_numbers(inner: str) -> list[str]:
    """Expand `01-03,07` to 01, 02, 03, 07."""
    numbers: list[str] = []
    for part in inner.split(","):
        first, dash, last = part.strip().partition("-")
        low, high = (
            safe_parse.parse_whole(first),
            safe_parse.parse_whole(last) if dash else safe_parse.parse_whole(first),
        )
        if low is None or high is None or high < low or high - low >= MOST:
            raise Unreadable(f"{part[:80]!r} is not a range of numbers", "01-04")
        numbers += [str(number).zfill(len(first)) for number in range(low, high + 1)]
    return numbers
