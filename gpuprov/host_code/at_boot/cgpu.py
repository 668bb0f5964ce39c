"""The settings of Alibaba's cGPU: their reader, their differences, and the program that sets them. `cgpu apply
[SECONDS]` loads cGPU if necessary, waits for it, writes the settings, and reads them back.

They are lines `GPU NODE VALUE`; GPU is a folder in /proc/cgpu_km, or * for every GPU; a later line wins.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Mapping, NamedTuple, Sequence

from .program import (
    Refused,
    group_cells,
    is_contained,
    main,
    read,
    read_rows,
    run,
    run_for_complaint,
    tell,
    wait,
    write,
)

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
    """A GPU by cGPU's own index."""

    index: int
    # The existing nodes, by name.
    settings: Mapping[str, str] = field(default_factory=dict)
    # Names of its containers' folders.
    instances: tuple[str, ...] = ()


class State(NamedTuple):
    """`version` is empty if the module is not loaded."""

    version: str
    gpus: tuple[CgpuGpu, ...]


class Difference(NamedTuple):
    """The actual and the desired value of a setting of a GPU."""

    gpu: CgpuGpu
    node: str
    actual: str
    value: str


def parse(text: str) -> State:
    """Parse the reader's output."""
    many = group_cells(text)
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


def parse_settings(lines: Iterable[Sequence[str]], index: int) -> dict[str, str]:
    """Return the settings that these lines request for a GPU, in the order in which they are written."""
    return {node: value for gpu, node, value in lines if gpu in ("*", str(index))}


def list_differences(gpus: Iterable[CgpuGpu], lines: Sequence[Sequence[str]]) -> Iterator[Difference]:
    """Yield the differences of each GPU from the requested settings."""
    for gpu in gpus:
        for node, value in parse_settings(lines, gpu.index).items():
            actual = gpu.settings.get(node, "not there") or "empty"
            if actual != value:
                yield Difference(gpu, node, actual, value)


def load() -> None:
    if is_contained():
        return
    # The driver's device files must be there when the module is loaded; nvidia-smi makes them.
    if not os.path.exists("/dev/nvidiactl"):
        run("nvidia-smi")
    for module in MODULES:
        if run("modinfo", "-n", module).returncode == 0 and not run_for_complaint("modprobe", module):
            return


def look() -> State:
    return parse(read(READER))


def apply(seconds: int) -> None:
    lines = read_rows(CONFIG)
    if not lines:
        raise Refused(f"{CONFIG} has no settings")
    if not look().version:
        load()
    wait(seconds, lambda: bool(look().version))
    state = look()
    if not state.version:
        raise Refused(f"{ROOT}/version is missing: cGPU is not installed, or is loaded later than this unit runs")
    if not state.gpus:
        raise Refused(f"cGPU {state.version} has no GPU")
    for gpu in sorted({row[0] for row in lines} - {"*", *(str(gpu.index) for gpu in state.gpus)}):
        raise Refused(f"there is no {ROOT}/{gpu}, which {CONFIG} names")
    pending = list(list_differences(state.gpus, lines))
    errors = {
        (item.gpu.index, item.node): write(f"{ROOT}/{item.gpu.index}/{item.node}", item.value) for item in pending
    }
    remaining = {(item.gpu.index, item.node): item for item in list_differences(look().gpus, lines)}
    for difference in pending:
        if (difference.gpu.index, difference.node) not in remaining:
            tell(f"GPU {difference.gpu.index} {difference.node} {difference.actual} -> {difference.value}")
    problems = []
    for place, difference in remaining.items():
        why = f" ({errors[place]})" if errors.get(place) else ""
        users = f", used by the containers {' '.join(difference.gpu.instances)}" if difference.gpu.instances else ""
        problems.append(
            f"{ROOT}/{difference.gpu.index}/{difference.node} stays {difference.actual}, expected "
            f"{difference.value}{why}{users}"
        )
    if problems:
        raise Refused("; ".join(problems))


if __name__ == "__main__":
    main("cgpu", {"apply": apply})
