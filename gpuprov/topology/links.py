"""PCIe links that are narrower or slower than both their ends can, and GPUs whose NVLinks are not all up."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpuprov.catalog.topology import nvlinks as of_model
from gpuprov.probe.gpus.topology import Function
from gpuprov.topology.model import Gpu, Wiring

WORKING = "P0"
"""The performance state of a GPU at work. An idle GPU lowers its link's speed: nvidia-smi --help-query-gpu says so of
pcie.link.gen.gpucurrent (`These may be reduced when the GPU is not in use`). Its width is judged in any case.
Without persistence mode the state says nothing: nvidia-smi wakes the GPU, and the link was read before
(https://docs.nvidia.com/deploy/driver-persistence)."""


class Lowered(msgspec.Struct, frozen=True, kw_only=True):
    """A link below what it could be. `port` is the bridge above, empty where this host does not see it.

    `idle`: only the speed is low, and the GPU at its end saves power, so that it says nothing.
    """

    function: Function
    port: str
    found: str
    possible: str
    idle: bool = False


def lowered(wiring: Wiring) -> Iterator[Lowered]:
    """Each such link on the way from a GPU, HCA or NVSwitch to its CPU, once."""
    gpus = {gpu.function.address: gpu for gpu in wiring.gpus}
    ends = [*(gpu.function for gpu in wiring.gpus), *(hca.function for hca in wiring.hcas), *wiring.nvswitches]
    seen: set[str] = set()
    for end in ends:
        way = [*(wiring.tree.functions[one] for one in end.bridges if one in wiring.tree.functions), end]
        if len(way) != len(end.bridges) + 1:
            way = [end]
        for number, function in enumerate(way):
            # A port and the function below it are the ends of a link; a switch's upstream and downstream ports are not.
            if function.address in seen or (number % 2 == 0 and (number or len(way) > 1)):
                continue
            seen.add(function.address)
            port = way[number - 1] if number else None
            if found := _lowered(function, port, gpus.get(function.address)):
                yield found


def _lowered(function: Function, port: Function | None, gpu: Gpu | None) -> Lowered | None:
    mine, above = function.link, port.link if port else None
    width = _least(mine.max_width, above.max_width if above else 0)
    speed = _least(mine.max_speed, above.max_speed if above else 0)
    narrow, slow = 0 < mine.width < width, 0 < mine.speed < speed
    if not narrow and not slow:
        return None
    working = gpu is None or (gpu.nvlink is not None and gpu.nvlink.persistent and gpu.nvlink.pstate == WORKING)
    return Lowered(
        function=function,
        port=port.address if port else "",
        found=told(mine.width, mine.speed),
        possible=told(width, speed),
        idle=not narrow and not working,
    )


def _least(one: float, other: float) -> float:
    """The smaller of two figures, of which 0 is unknown."""
    return min((value for value in (one, other) if value), default=0)


def told(width: float, speed: float) -> str:
    """`32 GT/s x16`."""
    return " ".join(filter(None, (f"{speed:g} GT/s" if speed else "", f"x{width:g}" if width else "")))


class Unlinked(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU with fewer NVLinks up than it should have; `why` says where the number comes from."""

    gpu: Gpu
    active: int
    expected: int
    why: str


def unlinked(wiring: Wiring, asked: int = 0) -> Iterator[Unlinked]:
    """GPUs with fewer active NVLinks than `asked`, else than their model has, else than their like on this host.

    Cards that take bridges may have none: then all of the model have none. A GPU in MIG mode is not judged: its NVLinks carry
    nothing, and Ampere's are down (https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide, MIG). Where nothing is known of
    NVLinks, no GPU is judged.
    """
    if wiring.nvlinks.complaint:
        return
    most: dict[str, int] = {}
    for gpu in wiring.gpus:
        if gpu.nvlink and not gpu.nvlink.mig:
            most[gpu.model] = max(most.get(gpu.model, 0), gpu.nvlink.active)
    for gpu in wiring.gpus:
        if gpu.nvlink is None or gpu.nvlink.mig:
            continue
        known = of_model(gpu.entry)
        bridged = gpu.entry is not None and gpu.entry.nvlink == "bridge"
        expected, why = most[gpu.model], f"another {gpu.model} here has"
        if asked:
            expected, why = asked, "topology.nvlinks asks for"
        elif known and not (bridged and not most[gpu.model]):
            expected, why = known, f"{gpu.model} has"
        elif gpu.entry is not None and gpu.entry.nvlink == "yes" and not expected:
            expected, why = 1, f"{gpu.model} has at least"
        if gpu.nvlink.active < expected:
            yield Unlinked(gpu=gpu, active=gpu.nvlink.active, expected=expected, why=why)
