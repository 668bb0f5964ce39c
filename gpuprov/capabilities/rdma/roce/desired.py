"""The unit that configures RoCE ports at boot, and the current differences from its settings."""

from gpuprov.capabilities.answers import BEFORE
from gpuprov.capabilities.at_boot import COMMON, command, unit
from gpuprov.capabilities.rdma.at_boot import RDMA, UNITS, AtBoot, configuration
from gpuprov.capabilities.rdma.roce.checks import Ctx, differences, later
from gpuprov.capabilities.rdma.roce.lines import lines
from gpuprov.catalog.rdma import roce as catalogue

ABOUT = f"What {catalogue.UNIT} sets on RoCE ports; `device` lines choose them, by what does not change (none: all)."
# network.target says only that the network's manager was started: it sets addresses, and the MTU that DHCP names, until
# network-online.target. openibd's restart takes the settings away.
UNIT = unit(
    f"""
Description=Settings of RoCE ports, which no adapter keeps
After=systemd-modules-load.service systemd-udev-settle.service rdma-hw.target openibd.service network.target network-online.target
{BEFORE}PartOf=openibd.service
""",
    f"""
# Drivers bring their devices one after another, seconds apart; udev is done when the last one is there.
ExecStartPre=-/usr/bin/env udevadm settle --timeout=60
ExecStart={command(RDMA, "roce", "apply", catalogue.WAIT)}
TimeoutStartSec={catalogue.WAIT + 120}
""",
    wanted_by="multi-user.target openibd.service",
)
MODULES = (*COMMON, "devices", "devices_reader", "roce_ports", "roce")
SERVICE = catalogue.UNIT
FILES = (f"{UNITS}/{SERVICE}", catalogue.CONFIG)


def at_boot(ctx: Ctx) -> AtBoot | None:
    """Return the unit; None if the spec has no settings."""
    desired = lines(ctx.fragment)
    if not desired:
        return None
    differs = [] if later(ctx) else differences(ctx)
    return AtBoot(
        unit=SERVICE,
        text=UNIT,
        modules=MODULES,
        files={catalogue.CONFIG: configuration(desired, ABOUT)},
        differs="; ".join(
            f"{differ.port.device} port {differ.port.number} {differ.key}: {differ.actual} -> {differ.value}"
            for differ in differs
        ),
        speaks="roce",
    )
