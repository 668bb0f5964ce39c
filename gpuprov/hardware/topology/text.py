"""A host's wiring as text: the tree, the distances, the findings."""

from collections.abc import Iterator, Sequence

from gpuprov.core.sanitize import hanging, wrapped
from gpuprov.hardware.topology.judge import Finding, assign_hcas
from gpuprov.hardware.topology.model import Gpu, Hca, Wiring
from gpuprov.hardware.topology.tree import Node, group_devices

UNICODE, ASCII = ("├─ ", "└─ ", "│  ", "   "), ("|- ", "`- ", "|  ", "   ")
LEGEND = (
    "PIX: one PCIe switch; PXB: several; PHB: a host bridge; NODE: two of a NUMA node; SYS: two NUMA nodes; "
    "NV#: # NVLinks"
)


def format_text(name: str, wiring: Wiring, findings: Sequence[Finding], *, plain: bool, width: int = 0) -> str:
    """Format the wiring. `width`: maximum width of lines that are broken between words; 0: none is broken."""
    wrong = sum(not finding.note for finding in findings)
    more = f"; {_count(wrong, 'warning')}, at the end" if wrong else ""
    lines = hanging(f"{name}: {format_summary(wiring)}{more}", width)
    names = [*(gpu.name for gpu in wiring.gpus), *(hca.name for hca in (*wiring.hcas, *wiring.bridges))]
    room = max(map(len, [*names, *["NVSwitch0"] * bool(wiring.nvswitches)]), default=0)
    for group in group_devices(wiring):
        lines += ["", group.name]
        for number, host in enumerate(group.hosts):
            lines += _format_branch(host, "", number == len(group.hosts) - 1, room, plain=plain, width=width)
    if wiring.gpus and wiring.hcas:
        lines += ["", *format_nearest(wiring)]
    if len(wiring.gpus) + len(wiring.hcas) > 1 and wiring.gpus:
        lines += ["", *_format_matrices(wiring, width), "", *hanging(LEGEND, width)]
    if findings:
        lines += ["", *(piece for line in _format_findings(findings) for piece in hanging(line, width))]
    return "\n".join(lines)


def format_summary(wiring: Wiring) -> str:
    """Summarize the devices: `8 x H100-SXM5-80GB, 8 HCAs, 4 NVSwitches, 2 sockets`."""
    models = [gpu.model for gpu in wiring.gpus]
    parts = [f"{models.count(model)} x {model}" for model in dict.fromkeys(models)] or ["no GPU"]
    parts.append(_count(len(wiring.hcas), "HCA"))
    if wiring.nvswitches:
        parts.append(_count(len(wiring.nvswitches), "NVSwitch"))
    if wiring.bridges:
        parts.append(_count(len(wiring.bridges), "NVLink bridge"))
    sockets = set(wiring.tree.sockets.values()) - {-1}
    nodes = {*wiring.tree.sockets, *(function.numa_node for function in wiring.tree.functions.values())} - {-1}
    if sockets or nodes:
        parts.append(_count(len(sockets), "socket") if sockets else _count(len(nodes), "NUMA node"))
    if wiring.unplaced:
        parts.append(f"not on the PCI bus: {' '.join(wiring.unplaced)}")
    return ", ".join(parts)


def _count(number: int, what: str) -> str:
    ending = "" if number == 1 else "es" if what.endswith("ch") else "s"
    return f"{number or 'no'} {what}{ending}"


def _format_branch(node: Node, before: str, last: bool, room: int, *, plain: bool, width: int) -> Iterator[str]:
    branch, corner, pipe, gap = ASCII if plain else UNICODE
    lines = [_format_node(node, room)]
    while len(node.children) == 1 and node.children[0].kind in ("port", "switch"):
        node = node.children[0]
        lines.append(_format_node(node, room))
    first, before = f"{before}{corner if last else branch}", before + (gap if last else pipe)
    text = ", ".join(lines)
    yield from wrapped(text, width, first, f"{before}  ") if len(first + text) > width > 0 else [first + text]
    for number, child in enumerate(node.children):
        yield from _format_branch(child, before, number == len(node.children) - 1, room, plain=plain, width=width)


def _format_node(node: Node, room: int) -> str:
    if node.kind in ("host", "port", "switch"):
        return " ".join(filter(None, (node.name, node.address, node.link)))
    return "  ".join(filter(None, (node.name.ljust(room), node.address, f"{node.link:<12}", *node.words))).rstrip()


def format_nearest(wiring: Wiring) -> list[str]:
    """Format the table of GPUs with their nearest HCAs, and the GPU's own among them."""
    best = assign_hcas(wiring)
    rows = [("GPU", "nearest HCA", "distance", "netdev", "other end")]
    for gpu in wiring.gpus:
        distance, hcas = wiring.near(gpu)
        others = len(hcas) - 1
        more = f" (and {others} as near)" if others else ""
        hca = best[gpu.index]
        ends = ", ".join(map(str, wiring.find_ends(hca)))
        rows.append((gpu.name, f"{hca.name}{more}", str(distance), " ".join(hca.device.netdevs), ends))
    return format_table(rows if any(row[-1] for row in rows[1:]) else [row[:-1] for row in rows])


def _format_matrices(wiring: Wiring, width: int) -> Iterator[str]:
    """Format the matrices: eight HCAs side by side, or as many as fit."""
    column = max((len(hca.name) for hca in wiring.hcas), default=0) + 2
    step = max(1, min(8, (width - 4) // column)) if width else 8
    parts: list[tuple[Sequence[Gpu | Hca], ...]] = [(wiring.gpus,)] if len(wiring.gpus) > 1 else []
    parts += [(wiring.hcas[start : start + step],) for start in range(0, len(wiring.hcas), step)]
    for number, (columns,) in enumerate(parts):
        rows = [("", *(hca.name for hca in columns))]
        rows += [(gpu.name, *(format_cell(wiring, gpu, hca) for hca in columns)) for gpu in wiring.gpus]
        yield from [""] * bool(number)
        yield from format_table(rows)


def format_cell(wiring: Wiring, gpu: Gpu, other: Gpu | Hca) -> str:
    """Return the cell of the matrix, as in nvidia-smi."""
    if isinstance(other, Hca):
        return wiring.distance(gpu.function, other.function)
    return "X" if gpu.index == other.index else wiring.between(gpu, other)


def format_table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _format_findings(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{'note' if finding.note else 'warning'}: {finding.message}"
        yield from [f"  {finding.fix}"] * bool(finding.fix)
