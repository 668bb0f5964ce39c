"""The settings of Alibaba's cGPU: how a host's are read, which of them differ, and the program that sets them. `cgpu apply [SECONDS]`
loads cGPU where it is not yet, waits for it, writes the settings, and reads them back.

They are lines `GPU NODE VALUE`; GPU is a folder in /proc/cgpu_km, or * for every one; a later line wins.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

from .program import Refused, cells, complaint, contained, main, read, rows, run, tell, wait, write

ROOT = "/proc/cgpu_km"
CONFIG = "/etc/gpuprov/cgpu.conf"
MODULES = ("cgpu_procfs", "cgpu_km")
READER = rf"""r={ROOT}
[ -r $r/version ] && echo "version|$(cat $r/version)"
for d in $r/[0-9]*; do
  [ -d "$d" ] || continue
  for n in max_inst policy prio_ratio; do [ -r "$d/$n" ] && echo "node|${{d##*/}}|$n|$(cat "$d/$n" 2>/dev/null)"; done
  for i in "$d"/*/; do [ -d "$i" ] && i=${{i%/}} && echo "instance|${{d##*/}}|${{i##*/}}"; done
done
true
"""


@dataclass(frozen=True)
class CgpuGpu:
    """A GPU by cGPU's own index. `settings`: the nodes that there are, by name. `instances`: names of its containers' folders."""

    index: int
    settings: Mapping[str, str] = field(default_factory=dict)
    instances: tuple[str, ...] = ()


class State(NamedTuple):
    """`version` is empty where the module is not loaded."""

    version: str
    gpus: tuple[CgpuGpu, ...]


class Difference(NamedTuple):
    """What a GPU has, and what it should have."""

    gpu: CgpuGpu
    node: str
    found: str
    value: str


def parse(text: str) -> State:
    """What the reader prints."""
    many = cells(text)
    nodes = [row for row in many.get("node", []) if row[0].isdigit()]
    inside = [row for row in many.get("instance", []) if row[0].isdigit()]
    return State(
        "|".join(many.get("version", [[""]])[0]).strip(),
        tuple(
            CgpuGpu(
                index,
                {row[1]: row[2] for row in nodes if int(row[0]) == index},
                tuple(row[1] for row in inside if int(row[0]) == index),
            )
            for index in sorted({int(row[0]) for row in (*nodes, *inside)})
        ),
    )


def wanted(lines: Iterable[Sequence[str]], index: int) -> dict[str, str]:
    """What these lines ask of a GPU, in the order in which it is written."""
    return {node: value for gpu, node, value in lines if gpu in ("*", str(index))}


def differences(gpus: Iterable[CgpuGpu], lines: Sequence[Sequence[str]]) -> Iterator[Difference]:
    """Of each GPU what is not as asked for."""
    for gpu in gpus:
        for node, value in wanted(lines, gpu.index).items():
            found = gpu.settings.get(node, "not there") or "empty"
            if found != value:
                yield Difference(gpu, node, found, value)


def load() -> None:
    if contained():
        return
    # The driver's device files must be there when the module is loaded; nvidia-smi makes them.
    if not os.path.exists("/dev/nvidiactl"):
        run("nvidia-smi")
    for module in MODULES:
        if run("modinfo", "-n", module).returncode == 0 and not complaint("modprobe", module):
            return


def look() -> State:
    return parse(read(READER))


def apply(seconds: int) -> None:
    lines = rows(CONFIG)
    if not lines:
        raise Refused(f"{CONFIG} has no settings")
    if not look().version:
        load()
    wait(seconds, lambda: bool(look().version))
    state = look()
    if not state.version:
        raise Refused(f"{ROOT}/version is not there: cGPU is not installed, or is loaded later than this unit runs")
    if not state.gpus:
        raise Refused(f"cGPU {state.version} has no GPU")
    for gpu in sorted({row[0] for row in lines} - {"*", *(str(gpu.index) for gpu in state.gpus)}):
        raise Refused(f"there is no {ROOT}/{gpu}, which {CONFIG} names")
    found = list(differences(state.gpus, lines))
    said = {(one.gpu.index, one.node): write(f"{ROOT}/{one.gpu.index}/{one.node}", one.value) for one in found}
    left = {(one.gpu.index, one.node): one for one in differences(look().gpus, lines)}
    for one in found:
        if (one.gpu.index, one.node) not in left:
            tell(f"GPU {one.gpu.index} {one.node} {one.found} -> {one.value}")
    told = []
    for place, one in left.items():
        why = f" ({said[place]})" if said.get(place) else ""
        users = f", used by the containers {' '.join(one.gpu.instances)}" if one.gpu.instances else ""
        told.append(f"{ROOT}/{one.gpu.index}/{one.node} stays {one.found}, expected {one.value}{why}{users}")
    if told:
        raise Refused("; ".join(told))


if __name__ == "__main__":
    main("cgpu", {"apply": apply})
