"""The unit that loads eRDMA's driver and sets the MTU at boot, the driver's options, and what they have to set now."""

from __future__ import annotations

from collections.abc import Iterator

from gpuprov.capabilities.rdma.at_boot import HEADER, JOBS, UNITS, AtBoot, Left, Program, configuration
from gpuprov.capabilities.rdma.erdma.state import Ctx, lines, same, vendor, wanted
from gpuprov.catalog import erdma as catalogue
from gpuprov.probe.erdma import ERDMA

UNIT = f"""{HEADER}[Unit]
Description=eRDMA: its driver, and the MTU of its network interfaces
Wants=network-online.target
After=network-online.target systemd-modules-load.service openibd.service
{JOBS}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh {catalogue.PROGRAM} apply 60
TimeoutStartSec=150

[Install]
WantedBy=multi-user.target
"""
UNIT_FILE = f"{UNITS}/{catalogue.UNIT}"


def at_boot(ctx: Ctx) -> AtBoot | None:
    """The unit, where the fabric is eRDMA."""
    if ctx.fragment.fabric != "erdma":
        return None
    about = f"What {catalogue.UNIT} reads back of the driver, and the MTU that it sets."
    files = {catalogue.CONFIG: configuration(lines(ctx.fragment), about), UNIT_FILE: UNIT}
    if vendor(ctx.fragment):
        files[catalogue.OPTIONS] = options(wanted(ctx.fragment))
    return AtBoot(
        unit=catalogue.UNIT,
        program=Program(source="erdma.sh", path=catalogue.PROGRAM),
        files=files,
        differs=", ".join(differences(ctx)),
        speaks="erdma",
        way_out="end who holds the devices, or reboot, and apply again",
    )


def options(asked: dict[str, str]) -> str:
    """The text of gpuprov's own file in modprobe.d."""
    given = " ".join(f"{name}={value}" for name, value in asked.items())
    about = f"# A file of gpuprov's own: {catalogue.VENDOR_OPTIONS} is the driver package's, and has its softdep."
    return f"{HEADER}{about}\noptions erdma {given}\n{catalogue.SOFTDEP}\n"


def differences(ctx: Ctx) -> Iterator[str]:
    """What is not as asked for of the driver and of the interfaces."""
    state, mtu = ctx.facts.get(ERDMA), str(catalogue.mtu(ctx.fragment.erdma.mtu))
    if not state.loaded:
        yield "erdma: not loaded -> loaded"
    elif state.stale:
        yield "erdma: another build -> the one on disk"
    for name, value in wanted(ctx.fragment).items() if state.loaded else ():
        if not same(found := state.parameters.get(name, ""), value):
            yield f"{name}: {found or 'none'} -> {value}"
    for pair in state.pairs:
        if str(pair.mtu) != mtu:
            yield f"MTU of {pair.netdev or pair.device}: {pair.mtu or 'none'} -> {mtu}"


def left(ctx: Ctx) -> Left:
    """What is there of it, with another fabric. The unit has no ExecStop: driver and MTU stay until the next boot."""
    there = ctx.facts.get(ERDMA).load == "loaded"
    return Left(unit=catalogue.UNIT, there=there, files=(UNIT_FILE, catalogue.CONFIG, catalogue.OPTIONS))


def outruns_images(ctx: Ctx) -> bool:
    """Whether the options in modprobe.d are written, or go: an older initramfs that holds erdma would load it as it was built. By the
    files' times, whatever changed just now: where a later role failed, the rebuild of that run did not come."""
    block, state = ctx.fragment, ctx.facts.get(ERDMA)
    return block.fabric == "erdma" or catalogue.OPTIONS in dict(state.files)
