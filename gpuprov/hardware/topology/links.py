"""PCIe links that are narrower or slower than both their ends support, and GPUs whose NVLinks are not all up."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from gpuprov.catalog.topology import count_nvlinks as of_model
from gpuprov.facts.probes.gpus.topology import Function
from gpuprov.facts.probes.host.virtualization import hidden
from gpuprov.hardware.topology.model import Gpu, Wiring

# The performance state of a GPU at work. An idle GPU lowers its link's speed: nvidia-smi --help-query-gpu on
# pcie.link.gen.gpucurrent (`These may be reduced when the GPU is not in use`). Its width is checked in any case.
# Without persistence mode the state proves nothing: nvidia-smi wakes the GPU, and the link was read before
# (https://docs.nvidia.com/deploy/driver-persistence).
WORKING = "P0"


UNSEEN_PORT = "the port above is not seen from here"


class Lowered(msgspec.Struct, frozen=True, kw_only=True):
    """A link below its capability."""

    function: Function
    # The bridge above, empty if this host does not see it.
    port: str
    actual: str
    possible: str
    # Only the speed is low, and the GPU at its end saves power, so it proves nothing.
    idle: bool = False
    # Only a comparison with similar devices on this host shows it.
    usual: bool = False
    # The reason why this host cannot show its capability.
    unseen: str = ""

    @property
    def is_defect(self) -> bool:
        return not self.idle and not self.unseen


def find_unanswering(wiring: Wiring) -> Iterator[Function]:
    """Find the GPUs, HCAs, NVSwitches and network functions that do not answer on the bus."""
    owned = [*(gpu.function for gpu in wiring.gpus), *(hca.function for hca in wiring.hcas)]
    ends = {end.address: end for end in (*owned, *wiring.nvswitches, *wiring.silent)}
    yield from (end for end in ends.values() if end.gone)


def find_lowered(wiring: Wiring) -> Iterator[Lowered]:
    """Find each such link on the path from a GPU, HCA or NVSwitch to its CPU, once."""
    gpus = {gpu.function.address: gpu for gpu in wiring.gpus}
    ends = [*(gpu.function for gpu in wiring.gpus), *(hca.function for hca in wiring.hcas), *wiring.nvswitches]
    seen: set[str] = set()
    for end in ends:
        way = [*(wiring.tree.functions[bridge] for bridge in end.bridges if bridge in wiring.tree.functions), end]
        if wiring.guest or len(way) != len(end.bridges) + 1:
            way = [end]
        for number, function in enumerate(way):
            # A port and the function below it are the ends of a link; a switch's upstream and downstream ports are not.
            if function.address in seen or (number % 2 == 0 and (number or len(way) > 1)):
                continue
            seen.add(function.address)
            port = way[number - 1] if number else None
            idle = not _is_working(gpus[function.address]) if function.address in gpus else False
            if port is None:
                link = _check_lone_link(
                    function, [peer for peer in ends if peer.identifier == function.identifier], idle, wiring.guest
                )
            else:
                link = _check_link(function, port, idle)
            if link:
                yield link


def _is_working(gpu: Gpu) -> bool:
    return gpu.nvlink is not None and gpu.nvlink.persistent and gpu.nvlink.pstate == WORKING


def _check_link(function: Function, port: Function, idle: bool) -> Lowered | None:
    link, above = function.link, port.link
    width, speed = _get_least(link.max_width, above.max_width), _get_least(link.max_speed, above.max_speed)
    narrow, slow = 0 < link.width < width, 0 < link.speed < speed
    if not narrow and not slow:
        return None
    return Lowered(
        function=function,
        port=port.address,
        actual=format_link(link.width, link.speed),
        possible=format_link(width, speed),
        idle=idle and not narrow,
    )


def _check_lone_link(function: Function, alike: Sequence[Function], idle: bool, guest: str) -> Lowered | None:
    """Check a link whose other end is not visible: the width and speed of most similar devices on this host are
    possible here, too; the capability of its own end may not be."""
    link = function.link
    width, speed = (find_usual([peer.link.width for peer in alike]), find_usual([peer.link.speed for peer in alike]))
    narrow, slow = 0 < link.width < width, 0 < link.speed < speed
    if narrow or slow:
        possible = format_link(max(width, link.width), max(speed, link.speed))
        return Lowered(
            function=function,
            port="",
            actual=format_link(link.width, link.speed),
            possible=possible,
            idle=idle and not narrow,
            usual=True,
        )
    narrow, slow = 0 < link.width < link.max_width, 0 < link.speed < link.max_speed
    if not narrow and not slow:
        return None
    return Lowered(
        function=function,
        port="",
        actual=format_link(link.width, link.speed),
        possible=format_link(link.max_width, link.max_speed),
        idle=idle and not narrow,
        unseen=hidden(guest, "port") or UNSEEN_PORT,
    )


def find_usual(figures: Sequence[float]) -> float:
    """Return the value that more than half of them have; 0 if there is none."""
    value, count = Counter(figures).most_common(1)[0]
    return value if count * 2 > len(figures) else 0


def _get_least(first: float, other: float) -> float:
    """Return the smaller of two values, where 0 is unknown."""
    return min((value for value in (first, other) if value), default=0)


def format_link(width: float, speed: float) -> str:
    """Format a link: `32 GT/s x16`."""
    return " ".join(filter(None, (f"{speed:g} GT/s" if speed else "", f"x{width:g}" if width else "")))


class Unlinked(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU with fewer NVLinks up than it should have."""

    gpu: Gpu
    active: int
    expected: int
    # The source of the number.
    why: str


def find_unlinked(wiring: Wiring, requested: int = 0) -> Iterator[Unlinked]:
    """Find GPUs with fewer active NVLinks than `requested`, else than their model has, else than similar GPUs on this
    host. Cards with optional bridges may have none: then all of the model have none. GPUs in MIG mode are skipped:
    their NVLinks carry nothing, and Ampere's are down
    (https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide, MIG). All GPUs are skipped if nothing is known
    of NVLinks. A guest may have been given GPUs without their NVLinks: there, each is compared with similar ones."""
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
        if requested:
            expected, why = requested, "topology.nvlinks asks for"
        elif hidden(wiring.guest, "nvswitches") and not most[gpu.model]:
            continue
        elif known and not (bridged and not most[gpu.model]):
            expected, why = known, f"{gpu.model} has"
        elif gpu.entry is not None and gpu.entry.nvlink == "yes" and not expected:
            expected, why = 1, f"{gpu.model} has at least"
        if gpu.nvlink.active < expected:
            yield Unlinked(gpu=gpu, active=gpu.nvlink.active, expected=expected, why=why)
