"""Can Fabric Manager be put there, and is there anything for it to do: decided before anything is changed."""

from __future__ import annotations

from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, ok
from gpuprov.capabilities.fabric_manager.fragment import (
    DRIVER_PROBES,
    HARDWARE_PROBES,
    FabricManager,
    driver_version,
    driver_wanted,
    generation,
    rules,
)
from gpuprov.capabilities.fabric_manager.tray import of_tray
from gpuprov.catalog import fabric as catalogue
from gpuprov.catalog import gpus
from gpuprov.probe import fabric, pci, system
from gpuprov.probe.base import Facts
from gpuprov.probe.packages import INDEX
from gpuprov.shared import resolve

Ctx = Context[FabricManager]


def useless(facts: Facts) -> str:
    """Why a host without NVSwitches has none, as far as its GPUs tell."""
    found = (gpus.by_pci_id(function.identifier) for function in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS)))
    models = {model.key: model for model in found if model}
    reasons = [reason for model in models.values() if (reason := catalogue.why_not(model))]
    if reasons:
        return reasons[0]
    named = ", ".join(models) or "no GPU"
    return f"the bus has {named}, and no NVSwitch: a board without them, or they belong to another machine"


@check(
    "fabric_manager.hardware",
    *(*HARDWARE_PROBES, fabric.SUBNET_KERNEL, system.PLATFORM, system.CONTAINER),
    moment="preflight",
    evidence="lspci -nn -d 10de:; grep -la SW_MNG /sys/bus/pci/devices/*/vpd; modinfo -n mlx5_ib ib_umad",
)
def hardware(ctx: Ctx) -> Outcome:
    """The host has NVSwitches, and its kernel the modules that they are reached through."""
    found = generation(ctx.facts)
    if not found:
        hint = "take fabric_manager out of this host's spec (fabric_manager: false)"
        return fail("NVSwitches on the bus", useless(ctx.facts), hint)
    if found >= catalogue.BRIDGED_GENERATION and (missing := lacking(ctx)):
        hint = (
            "install what has them: linux-modules-extra-$(uname -r) on Ubuntu, kernel-modules on EL, or another stack "
            "(rdma: {stack: doca-ofed})"
        )
        told = f"{ctx.facts.get(system.PLATFORM).kernel} has no {' '.join(missing)}"
        return fail(f"{', '.join(catalogue.SUBNET_MODULES)} for NVSwitches of generation {found}", told, hint)
    ids = [function.identifier for function in ctx.facts.get(pci.NVIDIA_FUNCTIONS)]
    count = sum(identifier in catalogue.switches() for identifier in ids)
    seen = f"{count} NVSwitches" if count else f"{len(ctx.facts.get(fabric.BRIDGES))} bridges to NVSwitches"
    return ok(f"{seen} of generation {found}")


def lacking(ctx: Ctx) -> list[str]:
    """The modules that the running kernel lacks, which nothing in the spec brings. The kernel's number says nothing of them:
    distributions backport."""
    brought = getattr(ctx.host.capabilities.get("rdma"), "stack", "") == "doca-ofed"
    if brought or ctx.facts.get(system.CONTAINER):
        return []
    there = ctx.facts.get(fabric.SUBNET_KERNEL).modules
    return [name for name in catalogue.SUBNET_MODULES if name not in there]


@check("fabric_manager.resolvable", *(*DRIVER_PROBES, fabric.PACKAGES, INDEX), moment="preflight")
def resolvable(ctx: Ctx) -> Outcome:
    """The host's repositories have Fabric Manager, or nvidia-imex on a tray, in the driver's version."""
    if driver_wanted(ctx.host):
        return ok("resolved with the driver, as one version: nvidia_driver.resolvable")
    driver = driver_version(ctx.facts)
    if not driver:
        hint = "add nvidia_driver to the spec, whose version is followed"
        return fail("an installed driver", "no NVIDIA driver is installed or loaded", hint)
    found = ctx.facts.get(fabric.PACKAGES)
    installed = {name: package.version for name, package in found.items()}
    part, what = ("imex", "nvidia-imex") if of_tray(ctx.fragment) else ("fabric-manager", "Fabric Manager")
    answer = resolve.follow(driver, rules(ctx.facts, part), ctx.facts.get(INDEX), installed)
    if answer["problem"]:
        return fail(f"{what} {driver}", answer["problem"], answer["hint"])
    name, version = answer["name"], answer["version"]
    changes = [Change(kind="package", name=other, before=installed[other]) for other in answer["replaced"]]
    if installed.get(name) != version:
        changes.append(Change(kind="package", name=name, before=installed.get(name, ""), after=version))
    return Outcome(status="pass", expected=driver, found=f"{name} {version}", changes=tuple(changes))
