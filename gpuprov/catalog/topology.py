"""The number of NVLinks that a healthy GPU of each model has."""

from __future__ import annotations

from gpuprov.catalog.gpus import Gpu
from gpuprov.catalog.reader import Fact, File, load


class ModelLinks(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`links` are up on each GPU of the model; on a card that takes a bridge, where it has all bridges."""

    model: str
    links: int


class TopologyFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/topology.yaml"""

    nvlinks: tuple[ModelLinks, ...]


def nvlinks(gpu: Gpu | None) -> int | None:
    """NVLinks of the model: 0 for one that has none, None where that is not known."""
    if gpu is None:
        return None
    if gpu.nvlink == "no":
        return 0
    return next((row.links for row in load("topology", TopologyFile).nvlinks if row.model == gpu.key), None)
