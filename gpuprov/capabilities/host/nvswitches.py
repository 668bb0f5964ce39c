"""The house's check of NVSwitches, which applies to hosts with and without fabric_manager in their spec."""

from collections.abc import Collection
from typing import Any

from gpuprov.capabilities.base import Check, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.catalog import fabric as nvswitches
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.host import pci, system, systemd

Ctx = Context[Any]


def nvswitch_fabric(driverless: Collection[str]) -> Check:
    """Return the check of NVSwitches, which knows the capabilities that make sense without them."""

    @check(
        "host.fabric",
        *(pci.NVIDIA_FUNCTIONS, fabric.BRIDGES, systemd.SYSTEMD_UNITS, system.CONTAINER),
        evidence="lspci -d 10de:; systemctl status nvidia-fabricmanager",
    )
    def judge_nvswitches(ctx: Ctx) -> Outcome:
        """A host with NVSwitches has a Fabric Manager, of gpuprov or another's: without it CUDA fails, and all else
        looks healthy."""
        return _judge_nvswitch_fabric(ctx, needed=not set(ctx.host.capabilities) <= set(driverless))

    return judge_nvswitches


def _judge_nvswitch_fabric(ctx: Ctx, *, needed: bool) -> Outcome:
    ids = [function.identifier for function in ctx.facts.get(pci.NVIDIA_FUNCTIONS)]
    generation = nvswitches.find_generation(ids, bridged=bool(ctx.facts.get(fabric.BRIDGES)))
    if not generation:
        return not_asked("no NVSwitch")
    if "fabric_manager" in ctx.host.capabilities:
        return ok(f"NVSwitches of generation {generation}, and fabric_manager in the spec")
    unit = ctx.facts.get(systemd.SYSTEMD_UNITS)[nvswitches.UNIT]
    if unit.active == "active":
        return ok(f"NVSwitches of generation {generation}, and a Fabric Manager that gpuprov does not manage")
    if not needed:
        return not_asked(f"NVSwitches of generation {generation}, and the spec has nothing that needs them")
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(
            f"{kind} container: the NVSwitches are the machine's, and so is their Fabric Manager",
            "fabric_manager: {} in the spec, unless another runs the Fabric Manager",
        )
    message = (
        f"NVSwitches of generation {generation}, and {nvswitches.UNIT} is {unit.active if unit.file else unit.load}"
    )
    return fail("a Fabric Manager", message, "fabric_manager: {} in the spec; without it CUDA ends with error 802")
