"""Selection of the RDMA devices that the `rdma` block covers. Every part uses it, as do the programs at boot; none
selects a device by number."""

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.hardware.topology.ports import convert_selectors, select_devices
from gpuprov.host_code.at_boot import devices as onhost
from gpuprov.host_code.at_boot.devices import IWARP, RdmaDevice, Selector, format_selector, is_of_fabric

__all__ = ("IWARP", "convert_selectors", "format_selector", "is_of_fabric", "select_devices", "unmet")


def unmet(block: Rdma, devices: tuple[RdmaDevice, ...]) -> list[Selector]:
    """Return the selectors that match no device."""
    return onhost.find_unmatched(convert_selectors(block), devices)
