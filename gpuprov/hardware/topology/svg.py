"""A host's wiring as one SVG file: sockets above and below, host bridges, root ports, switches, devices; NVLinks in the
middle."""

from collections.abc import Sequence

import msgspec

from gpuprov.hardware.topology.canvas import LARGE, LINE, Canvas
from gpuprov.hardware.topology.judge import Finding, assign_hcas
from gpuprov.hardware.topology.model import Wiring
from gpuprov.hardware.topology.text import format_summary
from gpuprov.hardware.topology.tree import Group, Node, group_devices

LEAF, HEIGHT, BAR, GAP, MARGIN, TRACK = 156, 92, 34, 8, 20, 18
HEAD = 66
LEAVES = ("gpu", "hca")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of NUMA nodes; `flipped`: devices are above, sockets below. `top`, `height`: of the row."""

    groups: tuple[Group, ...]
    flipped: bool
    top: float
    depth: int

    @property
    def height(self) -> float:
        return (self.depth + 1) * (BAR + GAP) + HEIGHT

    @property
    def edge(self) -> float:
        """Edge of the devices towards the middle."""
        return self.top if self.flipped else self.top + self.height

    def y(self, below: float, height: float) -> float:
        """Return the upper edge of a shape at this distance from the sockets' side."""
        return self.top + self.height - below - height if self.flipped else self.top + below


def draw_svg(name: str, wiring: Wiring, findings: Sequence[Finding]) -> str:
    """Draw the complete file; it is self-contained, and has colours for light and dark."""
    canvas = Canvas()
    canvas.text(MARGIN, 30, name, "t")
    canvas.text(MARGIN, 50, format_summary(wiring), "s")
    bad = {place for finding in findings if not finding.note for place in finding.places if place}
    warnings = [f"warning: {finding.message}" for finding in findings if not finding.note]
    notes = [f"note: {finding.message}" for finding in findings if finding.note]
    head = _draw_lines(canvas, warnings, 54, "w") + 14 if warnings else HEAD
    rows = _arrange_rows(wiring, head)
    spots: dict[int, tuple[float, float]] = {}
    picture = _Picture(canvas, wiring, bad, spots)
    for row in rows:
        x = float(MARGIN)
        for group in row.groups:
            x = picture.group(row, group, x)
    bottom = rows[-1].top + rows[-1].height if rows else float(head)
    wide = max([float(480), *(_compute_width(row) for row in rows)])
    if rows:
        middle = rows[0].edge
        bottom = max(bottom, middle + _compute_gap(wiring))
        _draw_nvlinks(canvas, wiring, spots, middle, wide)
    bottom = _draw_lines(canvas, notes, bottom + 16, "s")
    wide = max([wide, *(len(words) * LARGE * 0.8 for words in (*warnings, *notes))])
    return canvas.file(f"{name}: {format_summary(wiring)}", wide + 2 * MARGIN, bottom + MARGIN)


def _draw_lines(canvas: Canvas, lines: Sequence[str], above: float, style: str) -> float:
    """Draw lines of text; returns the end of the last one. Faults precede the picture, notes follow it."""
    for line in lines:
        above += LINE + 2
        canvas.text(MARGIN, above, line, style)
    return above


def _arrange_rows(wiring: Wiring, head: float) -> tuple[Row, ...]:
    """Arrange the first half of the sockets above, the other below; all in one row if there is one socket, or none is
    known."""
    drawn = [group for group in map(_filter_group, group_devices(wiring)) if group.hosts]
    sockets = list(dict.fromkeys(group.socket for group in drawn))
    first = set(sockets[: -(-len(sockets) // 2)])
    above = tuple(group for group in drawn if group.socket in first)
    below = tuple(group for group in drawn if group.socket not in first)
    if not above:
        return ()
    top = Row(groups=above, flipped=False, top=head, depth=_count_bars(above))
    if not below:
        return (top,)
    return (top, Row(groups=below, flipped=True, top=top.edge + _compute_gap(wiring), depth=_count_bars(below)))


def _filter_group(group: Group) -> Group:
    """Return the group without NVSwitches and NVLink bridges, which are drawn in the middle."""
    hosts = tuple(kept for host in group.hosts if (kept := _filter_node(host)))
    return msgspec.structs.replace(group, hosts=hosts)


def _filter_node(node: Node) -> Node | None:
    if node.kind in LEAVES:
        return node
    children = [kept for child in node.children if (kept := _filter_node(child))]
    return msgspec.structs.replace(node, children=children) if children else None


def _count_bars(row: Sequence[Group]) -> int:
    """Count the bars above the devices, without the socket's."""

    def below(node: Node) -> int:
        return 0 if node.kind in LEAVES else 1 + max(below(child) for child in node.children)

    return max(below(host) for group in row for host in group.hosts)


def _count_leaves(node: Node) -> int:
    return 1 if node.kind in LEAVES else sum(map(_count_leaves, node.children))


def _compute_width(row: Row) -> float:
    return float(
        sum((LEAF + GAP) * _count_leaves(host) for group in row.groups for host in group.hosts) + GAP * len(row.groups)
    )


def _compute_gap(wiring: Wiring) -> float:
    """Return the height of the space between the rows."""
    if wiring.switched:
        return 130.0 + (LINE + 4 if wiring.bridges else 0)
    return max(40.0, (len(wiring.nvlinks.pairs or ()) + 2.0) * TRACK) if wiring.nvlinks.pairs else 40.0


class _Picture:
    def __init__(self, canvas: Canvas, wiring: Wiring, bad: set[str], spots: dict[int, tuple[float, float]]) -> None:
        self.canvas, self.bad, self.spots = canvas, bad, spots
        self.gpus = {gpu.function.address: gpu for gpu in wiring.gpus}
        best = assign_hcas(wiring)
        self.nearest = {
            gpu.function.address: f"→ {best[gpu.index].name} {wiring.near(gpu)[0]}" if gpu.index in best else "no HCA"
            for gpu in wiring.gpus
        }

    def group(self, row: Row, group: Group, x: float) -> float:
        """Draw the group from `x` on; returns the start of the next one."""
        width = sum((LEAF + GAP) * _count_leaves(host) for host in group.hosts) - GAP
        self.canvas.box(x, row.y(0, BAR), width, BAR, "socket", [(group.name, "n")])
        at = x
        for host in group.hosts:
            self._node(row, host, at, 1)
            at += (LEAF + GAP) * _count_leaves(host)
        return at + GAP

    def _node(self, row: Row, node: Node, x: float, level: int) -> None:
        below = level * (BAR + GAP)
        width = (LEAF + GAP) * _count_leaves(node) - GAP
        style = f"{node.kind} bad" if node.address in self.bad else node.kind
        if node.kind in LEAVES:
            below = (row.depth + 1) * (BAR + GAP)
            top = row.y(below, HEIGHT)
            start = row.y(level * (BAR + GAP) - GAP, 0)
            self.canvas.line("wire", (x + width / 2, start), (x + width / 2, top + HEIGHT if row.flipped else top))
            self.canvas.box(x, top, width, HEIGHT, style, self._words(node))
            if node.address in self.gpus:
                self.spots[self.gpus[node.address].index] = (x + width / 2, row.edge)
            return
        if level > 1:
            middle = x + width / 2
            self.canvas.line("wire", (middle, row.y(below - GAP, 0)), (middle, row.y(below, 0)))
        words = [(node.name, "n" if node.kind == "switch" else ""), (f"{node.address} {node.link}", "s")]
        self.canvas.box(x, row.y(below, BAR), width, BAR, style, words)
        for child in node.children:
            self._node(row, child, x, level + 1)
            x += (LEAF + GAP) * _count_leaves(child)

    def _words(self, node: Node) -> list[tuple[str, str]]:
        words = [*node.words[:2], self.nearest[node.address]] if node.kind == "gpu" and len(node.words) > 1 else []
        if node.kind == "gpu" and not words:
            words = [*node.words, self.nearest[node.address]]
        if node.kind == "hca":
            layer, _, rate = node.words[0].partition(" ")
            words = [f"{layer} {rate}".replace(" ACTIVE", ""), *node.words[1:]]
        return [(node.name, "n"), (node.address, "s"), (node.link, "s"), *((word, "") for word in words)]


def _draw_nvlinks(
    canvas: Canvas, wiring: Wiring, spots: dict[int, tuple[float, float]], middle: float, wide: float
) -> None:
    """Draw NVLinks between the rows: to the NVSwitches, or from GPU to GPU."""
    pairs = wiring.nvlinks.pairs or {}
    if wiring.switched:
        top, bottom = middle + 36, middle + _compute_gap(wiring) - 36
        active = {gpu.index: gpu.nvlink.active for gpu in wiring.gpus if gpu.nvlink}
        for index, (x, y) in spots.items():
            if active.get(index):
                canvas.line("nv", (x, y), (x, top if y <= top else bottom))
                canvas.text(x + 6, (y + (top if y <= top else bottom)) / 2 + 4, f"NV{active[index]}", "l")
        words = [("NVSwitches" if wiring.nvswitches else "NVSwitches, not on this host's PCI bus", "n")]
        tooltips = [f"NVSwitch{number} {switch.address}" for number, switch in enumerate(wiring.nvswitches)]
        words += [("   ".join(tooltips), "s")] * bool(tooltips)
        if wiring.bridges:
            words.append((f"NVLink bridges, no HCAs: {' '.join(bridge.name for bridge in wiring.bridges)}", "s"))
        canvas.box(MARGIN, top, wide - 2 * GAP, bottom - top, "band", words)
        return
    for number, ((gpu, other), links) in enumerate(sorted(pairs.items())):
        if gpu not in spots or other not in spots:
            continue
        track = middle + (number + 1.5) * TRACK
        start, end = spots[gpu], spots[other]
        shift = (number % 7 - 3) * 8
        canvas.line(
            "nv",
            (start[0] + shift, start[1]),
            (start[0] + shift, track),
            (end[0] + shift, track),
            (end[0] + shift, end[1]),
        )
        canvas.text((start[0] + end[0]) / 2 + shift, track - 4, f"NV{links}", "l", "middle")
