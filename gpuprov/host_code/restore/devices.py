"""Reads and sets registers of PCIe functions and settings of RoCE ports by the names of a receipt."""

from __future__ import annotations

from typing import Iterator, Sequence

from ..at_boot import pcie, program, roce
from ..at_boot.roce_ports import Asked, Difference, RocePort, read_value
from ..lasting import Lasting, Place
from .kinds import find_key


def list_registers(settings: Sequence[Lasting]) -> Iterator[tuple[Lasting, pcie.Difference]]:
    """Yield each setting whose function answers, with its value now beside the one before. Raises Refused."""
    functions = pcie.parse(program.read(pcie.READER))
    for setting in settings:
        function = functions.get(setting.device)
        if function and not function.silent:
            register = setting.check.partition(".")[2]
            yield setting, pcie.compare_value(pcie.read_function(function), register, setting.before)


def read_registers(settings: Sequence[Lasting]) -> dict[Place, str]:
    return {setting.key: difference.actual for setting, difference in list_registers(settings)}


def put_registers(settings: Sequence[Lasting]) -> dict[Place, str]:
    return {setting.key: pcie.put(difference) for setting, difference in list_registers(settings)}


class Ports:
    """The RoCE ports that settings name."""

    def __init__(self, settings: Sequence[Lasting]) -> None:
        roce.load_manager()
        self.host = roce.Host(Asked([], 0, {find_key(setting): setting.before for setting in settings}))
        self.host.look()
        self.settings = settings

    def pairs(self) -> Iterator[tuple[Lasting, RocePort]]:
        """Yield each setting with its port, if that is here."""
        ports = {port.name: port for port in self.host.ports}
        yield from ((setting, ports[setting.device]) for setting in self.settings if setting.device in ports)


def read_ports(settings: Sequence[Lasting]) -> dict[Place, str]:
    return {setting.key: read_value(port, find_key(setting)) for setting, port in Ports(settings).pairs()}


def put_ports(settings: Sequence[Lasting]) -> dict[Place, str]:
    """Set what others follow from first: a port whose trust goes back to PCP loses its map of DSCPs."""
    ports, complaints = Ports(settings), {}
    pairs: list[tuple[Lasting, RocePort]] = sorted(ports.pairs(), key=lambda pair: find_key(pair[0]) not in roce.FIRST)
    for setting, port in pairs:
        key = find_key(setting)
        if setting.before != "by PCP":
            difference = Difference(port, key, read_value(port, key), setting.before)
            complaints[setting.key] = ports.host.put_value(difference)
    return complaints
