"""The eRDMA state that the spec asks for, in the host's terms: parameters, configuration lines, devices."""

from collections.abc import Callable
from typing import TypeVar

from gpuprov.capabilities.base import Context, Outcome, not_asked
from gpuprov.capabilities.rdma import installers
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.facts.probes.rdma import DEVICES, RdmaDevice
from gpuprov.facts.probes.rdma.erdma import Erdma as State
from gpuprov.host_code.at_boot.erdma_state import find_users, is_same_value

Ctx = Context[Rdma]
DRIVER = "erdma"
T = TypeVar("T")


def vendor(block: Rdma) -> bool:
    """Return whether the spec asks for Alibaba's driver rather than the kernel's."""
    return block.own_stack == "erdma-vendor"


def list_parameters(block: Rdma) -> dict[str, str]:
    """Return the parameters that the loaded module should have, as sysfs shows them; empty for the kernel's own
    driver."""
    if not vendor(block):
        return {}
    parameters = block.erdma.parameters
    shown = {str(key): catalogue.format_parameter(parameters[key]) for key in sorted(parameters)}
    return {"compat_mode": catalogue.format_parameter(bool(block.erdma.compat_mode)), **shown}


def checksum(block: Rdma) -> str:
    """Return the SHA-256 of the requested installer; empty if there is none."""
    return installers.digest(block.erdma, catalogue.read_erdma_file())


def lines(block: Rdma) -> tuple[str, ...]:
    """Return the configuration on the host: `parameter NAME VALUE` and `mtu NUMBER`."""
    return (
        *(f"parameter {name} {value}" for name, value in list_parameters(block).items()),
        f"mtu {catalogue.get_mtu(block.erdma.mtu)}",
    )


def devices(ctx: Ctx) -> tuple[RdmaDevice, ...]:
    """Return the eRDMA devices."""
    return tuple(device for device in ctx.facts.get(DEVICES) if device.driver == DRIVER)


def holders(state: State) -> str:
    """Return the processes that use the driver; empty if there are none."""
    return find_users(state.onhost)


def advise_reboot(state: State, block: Rdma) -> str:
    """Return the advice to reboot instead, if modprobe already gives the driver the requested parameters; else
    empty."""
    expected = list_parameters(block)
    right = all(is_same_value(state.options.get(name, ""), value) for name, value in expected.items())
    return "; or reboot: modprobe has the right options" if right else ""


def of_erdma(question: Callable[[Ctx], T]) -> Callable[[Ctx], T | Outcome]:
    """Return the check's function, limited to hosts with this fabric."""

    def judge_erdma(ctx: Ctx) -> T | Outcome:
        if ctx.fragment.fabric != "erdma":
            return not_asked(f"the fabric is {ctx.fragment.fabric}")
        return question(ctx)

    judge_erdma.__doc__ = question.__doc__
    return judge_erdma


def of_vendor(question: Callable[[Ctx], T]) -> Callable[[Ctx], T | Outcome]:
    """Return the check's function, limited to hosts whose spec asks for Alibaba's driver."""

    def judge_vendor(ctx: Ctx) -> T | Outcome:
        if not vendor(ctx.fragment):
            return not_asked("the driver is the kernel's own")
        return question(ctx)

    judge_vendor.__doc__ = question.__doc__
    return of_erdma(judge_vendor)
