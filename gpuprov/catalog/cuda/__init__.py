"""Compatibility of drivers and CUDA toolkits (Linux x86_64)."""

import re
from functools import cache
from typing import NamedTuple

from gpuprov.catalog.drivers import Version, find_branch, list_branches
from gpuprov.catalog.gpus import list_gpus
from gpuprov.catalog.reader import Confidence, Fact, File, load
from gpuprov.core.errors import GpuprovError


class Family(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A CUDA major: drivers from `min_driver` on run all its toolkits."""

    family: str
    min_driver: str


class Toolkit(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A toolkit and the driver that gives all its features; only `branch` if the exact driver is not known."""

    cuda: str
    driver: str = ""
    branch: str = ""


class CudaFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/cuda.yaml"""

    families: tuple[Family, ...]
    toolkits: tuple[Toolkit, ...]


class Support(NamedTuple):
    """The answer whether a driver runs a toolkit (`runs`) and has all its features (`full`); None: unknown, `reason`
    says why.

    `find_floor` and `full_driver` are the oldest drivers for each; "" if unknown.
    """

    runs: bool | None
    full: bool | None
    floor: str
    full_driver: str
    reason: str
    confidence: Confidence


def list_families() -> tuple[Family, ...]:
    """CUDA majors, newest first."""
    return load("cuda", CudaFile).families


def list_toolkits() -> tuple[Toolkit, ...]:
    """All toolkits, newest first."""
    return load("cuda", CudaFile).toolkits


def find_max_cuda(branch: str) -> str | None:
    """The CUDA version that drivers of the branch report ("580" -> "13.0"); None when not known."""
    entry = find_branch(branch)
    return entry.cuda if entry else None


def find_floor(cuda: str) -> str:
    """Return the oldest driver that runs CUDA `cuda`; "" if unknown."""
    return check_support("1", cuda).floor


def find_whole(version: str) -> list[str]:
    """Return the driver releases of three parts that begin with a version of two; empty if the catalogue knows none."""
    if version.count(".") != 1:
        return []
    seen = {entry.newest_seen for entry in list_branches()} | {gpu.first_listed for gpu in list_gpus()}
    known = sorted({*seen, *(row.driver for row in list_toolkits()), *(gpu.mig.min_driver for gpu in list_gpus())})
    return [release for release in known if release.startswith(f"{version}.")]


def list_floors() -> dict[str, str]:
    """Return the `find_floor` of every CUDA version in the catalogue: majors, minors and full versions."""
    return dict(compute_floors())


@cache
def compute_floors() -> dict[str, str]:
    cells = [row.cuda.split(".") for row in list_toolkits()]
    known = {".".join(parts[:n]) for parts in cells for n in range(1, len(parts) + 1)}
    return {version: find_floor(version) for version in sorted(known, key=lambda v: [int(n) for n in v.split(".")])}


def is_at_least(driver: str, needed: str) -> bool | None:
    """Compare; None for a branch alone if the needed version lies within it."""
    has, want = Version.parse(driver), Version.parse(needed)
    if has.is_branch and not want.is_branch and has.parts[0] == want.parts[0]:
        return None
    return has >= want


def find_toolkit(cuda: str) -> Toolkit | None:
    """Return the row of the toolkit; for "12.4" its first release, for "12" the first of all."""
    rows = [row for row in list_toolkits() if row.cuda == cuda or row.cuda.startswith(f"{cuda}.")]
    return min(rows, key=lambda row: tuple(int(part) for part in row.cuda.split(".")), default=None)


def check_support(driver_version: str, cuda: str) -> Support:
    """Return whether the driver runs CUDA `cuda` ("12", "12.4" or "12.4.1").

    The floor of the family decides; before CUDA 11 there was none, and the toolkit's own driver decides.
    `driver_version` may be a branch; an answer that depends on the release is then None.
    """
    if not re.fullmatch(r"\d+(\.\d+){0,2}", cuda.strip()):
        raise GpuprovError(f"{cuda!r} is not a CUDA version", "A CUDA version is like 12.4 or 12.4.1.")
    cuda = cuda.strip()
    family = next((entry for entry in list_families() if entry.family == cuda.split(".")[0]), None)
    row = find_toolkit(cuda)
    needed = (row.driver or row.branch) if row else ""
    full = is_at_least(driver_version, needed) if needed else None
    if family is None:
        text = f"CUDA {cuda} needs driver {needed}" if needed else f"CUDA {cuda} is not in the catalogue"
        return Support(full, full, needed, needed, text, row.confidence if row else "unconfirmed")
    runs = is_at_least(driver_version, family.min_driver)
    text = f"CUDA {family.family}.x runs from driver {family.min_driver} on"
    if needed:
        text += f"; all features of {cuda} need {needed}"
    return Support(runs, full, family.min_driver, needed, text, row.confidence if row else family.confidence)
