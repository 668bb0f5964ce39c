"""Data about a host on a page beside its results, from the facts read for them: wiring and MIG as diagrams, the
receipt."""

from collections.abc import Iterable
from contextlib import suppress
from sys import intern
from typing import Any

from gpuprov.core import terminal
from gpuprov.core.errors import defect
from gpuprov.facts.probes.base import Facts, Probe, ProbeFailed
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.software import packages
from gpuprov.hardware.topology import read
from gpuprov.hardware.topology.canvas import LINE, Canvas
from gpuprov.hardware.topology.judge import list_findings
from gpuprov.hardware.topology.svg import draw_svg
from gpuprov.report.fleet import Known
from gpuprov.spec.model import RACK, RawHost

# Probes for the page that no check needs.
PROBES: tuple[Probe[Any], ...] = (house.RECEIPT, system.OS_RELEASE, system.PLATFORM)
SLICE, HEIGHT, LEFT, GAP = 92, 44, 170, 10


def known(host: RawHost, facts: Facts | None = None) -> Known:
    """Return the page's data about a host; what could not be read is left out."""
    rack = str(host.connection.get(RACK) or "")
    if facts is None:
        return Known(groups=host.groups, rack=rack)
    return Known(
        groups=host.groups,
        rack=rack,
        pictures=_draw_pictures(host.name, facts),
        receipt=_list_receipt(facts),
        versions=_list_versions(facts),
    )


def _list_versions(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Return the host's versions, as far as they were read: distribution, running kernel, and the driver's packages."""
    versions: list[tuple[str, str]] = []
    with suppress(ProbeFailed):
        release = facts.get(system.OS_RELEASE)
        versions.append(("distribution", release.name or f"{release.id} {release.version}"))
    with suppress(ProbeFailed):
        versions.append(("running kernel", facts.get(system.PLATFORM).kernel))
    with suppress(ProbeFailed):
        having: dict[str, list[str]] = {}
        for fact in sorted(facts.get(packages.PACKAGES).values(), key=lambda fact: fact.name):
            having.setdefault(fact.version, []).append(fact.name)
        versions += [
            (version, ", ".join(names)) for version, names in sorted(having.items(), key=lambda pair: -len(pair[1]))
        ]
    return tuple(versions)


def _draw_pictures(name: str, facts: Facts) -> tuple[tuple[str, str], ...]:
    """Return SVG files by title. They omit the host's name, so that equal hosts have equal files, stored once in the
    page."""
    drawn = []
    for title, draw in (("Topology", _draw_topology), ("MIG", _draw_mig)):
        try:
            if picture := draw(facts):
                drawn.append((title, intern(picture)))
        except ProbeFailed:
            continue  # not read, or told by a check
        except Exception as error:
            terminal.warning(f"{name}: no picture in the page: {'; '.join(defect(title, error))}")
    return tuple(drawn)


def _draw_topology(facts: Facts) -> str:
    wiring = read(facts)
    return draw_svg("", wiring, list_findings(wiring)) if wiring.gpus else ""


def _draw_mig(facts: Facts) -> str:
    return mig_picture(facts.get(mig.STATE).gpus)


def mig_picture(gpus: Iterable[mig.MigGpu]) -> str:
    """Return GPU instances on the memory slices of each GPU; GPUs with equal instances once. Empty if no GPU is in MIG
    mode."""
    alike: dict[tuple[str, int, tuple[tuple[int, int, str], ...]], list[int]] = {}
    for gpu in gpus:
        if gpu.current:
            parts = tuple(sorted((instance.start, instance.size, instance.profile) for instance in gpu.instances))
            ends = [start + profile.size for profile in gpu.profiles for start in profile.starts] + [
                s + size for s, size, _ in parts
            ]
            alike.setdefault((gpu.name, max(ends, default=0), parts), []).append(gpu.index)
    canvas, top, wide = Canvas(), GAP, 0
    for (name, grid, parts), numbers in alike.items():
        canvas.text(GAP, top + LINE + 4, f"GPU {', '.join(map(str, numbers))}", "n")
        canvas.text(GAP, top + 2 * LINE + 6, name, "s")
        canvas.box(LEFT, top, max(grid, 1) * SLICE, HEIGHT, "host", [("" if parts else "no instance", "s")])
        for start, size, profile in parts:
            canvas.box(
                LEFT + start * SLICE + 2,
                top + 2,
                size * SLICE - 4,
                HEIGHT - 4,
                "gpu",
                [(profile, "n"), (_format_slices(start, size), "s")],
            )
        top += HEIGHT + GAP
        wide = max(wide, LEFT + max(grid, 1) * SLICE)
    return canvas.file("MIG instances", wide + GAP, top) if alike else ""


def _format_slices(start: int, size: int) -> str:
    return f"slice {start}" if size == 1 else f"slices {start} to {start + size - 1}"


def _list_receipt(facts: Facts) -> tuple[tuple[str, str], ...]:
    """Return what was applied, in the receipt's order, and when."""
    receipt = facts.known(house.RECEIPT)
    if receipt is None:
        return ()
    if receipt.damaged:
        return (("receipt", f"damaged: {receipt.damaged}"),)
    return (
        ("gpuprov", f"{receipt.gpuprov_version}, {receipt.applied_at}"),
        *((name, entry.applied_at) for name, entry in receipt.capabilities.items()),
    )
