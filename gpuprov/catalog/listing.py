"""Rows for `gpuprov catalog gpus|drivers|cuda|mig|recipes`: as text for a table, and as data for JSON."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from gpuprov.catalog import cuda, drivers, mig, recipes
from gpuprov.catalog.gpus import find_gpu, list_gpus, list_of_stem
from gpuprov.catalog.reader import LEGEND, mark
from gpuprov.core.errors import GpuprovError


class Table(NamedTuple):
    """Header and rows of text, all of one width; `legend` explains the marks."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    # Columns that are dropped if space is short.
    spare: tuple[str, ...]
    legend: str


_SPARE: Mapping[str, tuple[str, ...]] = {
    "gpus": ("sources", "pci", "name", "chip", "form", "nvswitch", "modules", "fabric", "nvlink"),
    "mig": ("sources", "grid", "attributes"),
    "recipes": ("sources", "distributions", "instances", "for"),
}


def list_gpu_rows() -> list[dict[str, str]]:
    rows = []
    for gpu in list_gpus():
        fabric: str = "imex" if gpu.fabric_manager.imex else gpu.fabric_manager.needed
        if gpu.fabric_manager.nvlsm:
            fabric += "+nvlsm"
        profiles = (gpu.mig.profile_class or "yes") if gpu.mig.capable else "no"
        first = mark(gpu.min_branch.branch, gpu.sure("min_branch")) if gpu.min_branch else "-"
        last = mark(gpu.last_branch.branch, gpu.sure("last_branch")) if gpu.last_branch else "-"
        rows.append(
            {
                "key": mark(gpu.key, gpu.confidence),
                "name": gpu.name,
                "pci": " ".join(mark(pci.id, pci.confidence) for pci in gpu.pci_ids),
                "arch": mark(gpu.arch, gpu.sure("arch")),
                "chip": mark(gpu.chip, gpu.sure("chip")),
                "cc": mark(gpu.compute_capability, gpu.sure("compute_capability")),
                "memory GB": mark("/".join(map(str, gpu.memory_gb)), gpu.sure("memory_gb")),
                "form": mark(gpu.form_factor, gpu.sure("form_factor")),
                "nvlink": mark(gpu.nvlink, gpu.sure("nvlink")),
                "nvswitch": mark(gpu.nvswitch.generation, gpu.sure("nvswitch")) if gpu.nvswitch else "-",
                "fabric": mark(fabric, gpu.sure("fabric_manager")),
                "mig": mark(profiles, gpu.sure("mig")),
                "modules": mark(gpu.kernel_modules.flavour, gpu.sure("kernel_modules")),
                "first": first,
                "last": last,
                "sources": " ".join(gpu.source),
            }
        )
    return rows


def list_driver_rows() -> list[dict[str, str]]:
    rows = []
    for entry in drivers.list_branches():
        end = mark(entry.eol, entry.sure("eol")) if entry.eol else ""
        rows.append(
            {
                "branch": mark(entry.branch, entry.confidence),
                "type": mark(entry.type, entry.sure("type")),
                "end of life": end
                or (mark("past", entry.sure("ended")) if entry.ended else mark(None, entry.sure("eol"))),
                "cuda": mark(entry.cuda, entry.sure("cuda")),
                "newest seen": entry.newest_seen or "-",
                "notes": "; ".join(filter(None, (entry.eol_text, *entry.notes))),
                "sources": " ".join(entry.source),
            }
        )
    return rows


def list_cuda_rows() -> list[dict[str, str]]:
    floors = {entry.family: entry for entry in cuda.list_families()}
    rows = []
    for row in cuda.list_toolkits():
        family = floors.get(row.cuda.split(".")[0])
        rows.append(
            {
                "cuda": mark(row.cuda, row.confidence),
                "runs from": mark(family.min_driver, family.confidence) if family else mark(row.driver, row.confidence),
                "all features from": mark(row.driver or row.branch, row.confidence),
                "sources": " ".join(row.source),
            }
        )
    return rows


def list_mig_rows() -> list[dict[str, str]]:
    rows = []
    for entry in mig.list_classes():
        for profile in entry.profiles:
            sure = profile.placement_confidence
            starts = ",".join(map(str, profile.starts))
            rows.append(
                {
                    "class": mark(entry.name, entry.confidence),
                    "profile": profile.name,
                    "max": str(profile.max_count),
                    "id": mark(profile.nvsmi_id, sure),
                    "placements": mark(f"{{{starts}}}:{profile.size}" if profile.size else None, sure),
                    "grid": str(entry.grid_size or "-"),
                    "memory GiB": str(profile.memory_gib or "-"),
                    "SMs": str(profile.sm or "-"),
                    "attributes": ",".join(profile.attributes) or "-",
                    "sources": " ".join(entry.source),
                }
            )
    return rows


def _list_recipes() -> list[dict[str, str]]:
    return [
        {
            "recipe": mark(recipe.key, recipe.confidence),
            "for": recipe.title,
            "GPUs": f"{recipe.count} x {recipe.model}",
            "fabric": recipe.fabric or "-",
            "instances": " ".join(recipe.instances) or "-",
            "distributions": " ".join(recipe.distributions),
            "sources": " ".join(recipe.source),
        }
        for recipe in recipes.recipes()
    ]


_TEXT: Mapping[str, Callable[[], list[dict[str, str]]]] = {
    "gpus": list_gpu_rows,
    "drivers": list_driver_rows,
    "cuda": list_cuda_rows,
    "mig": list_mig_rows,
    "recipes": _list_recipes,
}
_DATA: Mapping[str, Callable[[], tuple[msgspec.Struct, ...]]] = {
    "gpus": list_gpus,
    "drivers": drivers.list_branches,
    "cuda": cuda.list_toolkits,
    "mig": mig.list_classes,
    "recipes": recipes.recipes,
}
LISTINGS: tuple[str, ...] = tuple(_TEXT)


def check_name(name: str) -> str:
    if name not in _TEXT:
        raise GpuprovError(f"there is no catalogue {name!r}", f"There are {', '.join(LISTINGS)}.")
    return name


def build_table(name: str) -> Table:
    """Return the listing as text; every unconfirmed value is marked ~ or ?."""
    rows = _TEXT[check_name(name)]()
    cells = tuple(tuple(row.values()) for row in rows)
    return Table(tuple(rows[0]), cells, _SPARE.get(name, ("sources",)), build_legend(name))


def build_legend(name: str) -> str:
    """Return the meaning of the marks and, for drivers, of the types."""
    types = drivers.list_lifecycles() if name == "drivers" else ()
    legend = (f"{entry.type} {entry.name}, support: {mark(entry.support, entry.confidence)}" for entry in types)
    return "; ".join((*legend, LEGEND))


def select_of_gpu(name: str, word: str) -> frozenset[str]:
    """Return the values of the first column in rows about a GPU, or about all GPUs of a model; empty if the word names
    none."""
    exact = find_gpu(word)
    matching = [exact] if exact else list_of_stem(word)
    if name == "gpus":
        return frozenset(gpu.key for gpu in matching)
    return (
        frozenset(gpu.mig.profile_class for gpu in matching if gpu.mig.profile_class) if name == "mig" else frozenset()
    )


def list_rows(name: str) -> list[dict[str, Any]]:
    """The listing as plain data for JSON: every field of every entry, with `confidence` and `source`."""
    entries = [msgspec.to_builtins(entry) for entry in _DATA[check_name(name)]()]
    if name == "recipes":
        whole = (msgspec.to_builtins(recipes.lines_of(recipe)) for recipe in recipes.recipes())
        return [{**row, "lines": lines} for row, lines in zip(entries, whole, strict=True)]
    if name == "cuda":
        floors = {entry.family: entry.min_driver for entry in cuda.list_families()}
        return [{**row, "runs_from": floors.get(row["cuda"].split(".")[0], row["driver"])} for row in entries]
    return entries
