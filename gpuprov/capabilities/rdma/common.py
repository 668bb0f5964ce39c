"""Selection of the RDMA devices that the `rdma` block covers. Every part uses it, as do the programs at boot; none selects a device by
number."""

from __future__ import annotations

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.onhost.at_boot import devices as onhost
from gpuprov.onhost.at_boot.devices import IWARP, RdmaDevice, Selector, speaks, words
from gpuprov.topology.ports import selected, selectors

__all__ = ("IWARP", "selected", "selectors", "speaks", "unmet", "words")


def unmet(block: Rdma, devices: tuple[RdmaDevice, ...]) -> list[Selector]:
    """Return the selectors that match no device."""
    return onhost.unmet(selectors(block), devices)
