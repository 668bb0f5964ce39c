"""The number of NVLinks that a healthy GPU of each model has."""

from __future__ import annotations

from gpuprov.catalog.gpus import Gpu
from gpuprov.catalog.reader import Fact, File, load


class ModelLinks(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`links` are up on each GPU of the model; on a card that takes bridges, if it has all of them."""

    model: str
    links: int


class TopologyFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/topology.yaml"""

    nvlinks: tuple[ModelLinks, ...]


def nvlinks(gpu: Gpu | None) -> int | None:
    """Return the NVLinks of the model: 0 if it has none, None if unknown."""
    if gpu is None:
        return None
    if gpu.nvlink == "no":
        return 0
    return next((row.links for row in load("topology", TopologyFile).nvlinks if row.model == gpu.key), None)
