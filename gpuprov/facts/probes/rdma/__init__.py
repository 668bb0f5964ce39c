"""The RDMA devices of a host, and ports that are slower than comparable ones."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.at_boot import devices, devices_reader
from gpuprov.host_code.at_boot.devices import Gid, RdmaDevice, RdmaPort, list_hcas

__all__ = ("DEVICES", "Gid", "RdmaDevice", "RdmaPort", "SlowPort", "list_hcas", "parse", "slow_ports")


def parse(output: Output) -> tuple[RdmaDevice, ...]:
    return devices.parse(output.text)


DEVICES = Probe("rdma_devices", devices_reader.READER, parse, "rdma link; ibv_devinfo -v")


class SlowPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port that is up and slower than most ports of the same model of device on its host."""

    device: str
    address: str
    port: int
    rate: float
    usual: float

    def __str__(self) -> str:
        return (
            f"port {self.port} of {self.device} ({self.address}) runs at {self.rate:g} Gb/s, its like here at "
            f"{self.usual:g}: "
            "look at its cable and at the port of the switch"
        )


def slow_ports(devices: Iterable[RdmaDevice]) -> list[SlowPort]:
    """Find ports below the rate of more than half of the ports of the same model and link layer."""
    alike: dict[tuple[str, str], list[tuple[RdmaDevice, RdmaPort]]] = {}
    for device in devices:
        for port in device.ports if device.works and not device.soft and not device.virtual else ():
            if port.state == "ACTIVE" and port.rate:
                alike.setdefault((device.identifier, port.link_layer), []).append((device, port))
    slow = []
    for ports in alike.values():
        usual, count = Counter(port.rate for _, port in ports).most_common(1)[0]
        slow += [
            SlowPort(device=device.name, address=device.address, port=port.number, rate=port.rate, usual=usual)
            for device, port in ports
            if port.rate < usual and count * 2 > len(ports)
        ]
    return slow
