"""Which of a host's RDMA devices the `rdma` block is about. Every part asks here, as the programs at boot do; none names a device by
number."""

from __future__ import annotations

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.onhost.at_boot import devices as onhost
from gpuprov.onhost.at_boot.devices import IWARP, RdmaDevice, Selector, speaks, words
from gpuprov.topology.ports import selected, selectors

__all__ = ("IWARP", "selected", "selectors", "speaks", "unmet", "words")


def unmet(block: Rdma, devices: tuple[RdmaDevice, ...]) -> list[Selector]:
    """The selectors that mean no device."""
    return onhost.unmet(selectors(block), devices)
