"""What eRDMA is asked to be, in the words of the host: parameters, configuration lines, devices."""

from __future__ import annotations

from collections.abc import Callable

from gpuprov.capabilities.base import Context, Outcome, not_asked
from gpuprov.capabilities.rdma import installers
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.onhost.at_boot.erdma_state import held_by, same
from gpuprov.probe.rdma import DEVICES, RdmaDevice
from gpuprov.probe.rdma.erdma import Erdma as State

Ctx = Context[Rdma]
DRIVER = "erdma"


def vendor(block: Rdma) -> bool:
    """Whether Alibaba's driver is asked for, not the kernel's."""
    return block.own_stack == "erdma-vendor"


def wanted(block: Rdma) -> dict[str, str]:
    """The parameters that the loaded module should have, as sysfs shows them; none of the kernel's own driver."""
    if not vendor(block):
        return {}
    asked = block.erdma.parameters
    shown = {str(key): catalogue.shown(asked[key]) for key in sorted(asked)}
    return {"compat_mode": catalogue.shown(bool(block.erdma.compat_mode)), **shown}


def checksum(block: Rdma) -> str:
    """The SHA-256 of the installer that is asked for; empty for none."""
    return installers.digest(block.erdma, catalogue.erdma_file())


def lines(block: Rdma) -> tuple[str, ...]:
    """The configuration on the host: `parameter NAME VALUE` and `mtu NUMBER`."""
    return (
        *(f"parameter {name} {value}" for name, value in wanted(block).items()),
        f"mtu {catalogue.mtu(block.erdma.mtu)}",
    )


def devices(ctx: Ctx) -> tuple[RdmaDevice, ...]:
    """The eRDMA devices."""
    return tuple(device for device in ctx.facts.get(DEVICES) if device.driver == DRIVER)


def holders(state: State) -> str:
    """Who uses the driver; empty for nobody."""
    return held_by(state.onhost)


def way_out(state: State, block: Rdma) -> str:
    """That a reboot would do it, too, where modprobe gives the driver what is asked for already; else empty."""
    asked = wanted(block)
    right = all(same(state.options.get(name, ""), value) for name, value in asked.items())
    return "; or reboot: modprobe has the right options" if right else ""


def of_erdma(question: Callable[[Ctx], Outcome]) -> Callable[[Ctx], Outcome]:
    """The question, asked of hosts with this fabric only."""

    def asked(ctx: Ctx) -> Outcome:
        if ctx.fragment.fabric != "erdma":
            return not_asked(f"the fabric is {ctx.fragment.fabric}")
        return question(ctx)

    asked.__doc__ = question.__doc__
    return asked


def of_vendor(question: Callable[[Ctx], Outcome]) -> Callable[[Ctx], Outcome]:
    """The question, asked where Alibaba's driver is asked for."""

    def asked(ctx: Ctx) -> Outcome:
        if not vendor(ctx.fragment):
            return not_asked("the driver is the kernel's own")
        return question(ctx)

    asked.__doc__ = question.__doc__
    return of_erdma(asked)
