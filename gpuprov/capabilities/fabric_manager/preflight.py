"""Checks that Fabric Manager can be installed and has NVSwitches to manage, made before anything is changed."""

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.compared import move_packages
from gpuprov.capabilities.fabric_manager.decision import PROBES, decide, installed, what
from gpuprov.capabilities.fabric_manager.fragment import (
    HARDWARE_PROBES,
    FabricManager,
    driver_version,
    driver_wanted,
    generation,
)
from gpuprov.catalog import fabric as catalogue
from gpuprov.catalog import gpus
from gpuprov.catalog.drivers.sets import find_packages
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.kernel.modules import underscored

Ctx = Context[FabricManager]


def useless(facts: Facts) -> str:
    """Return why a host without NVSwitches has none, as far as its GPUs show."""
    candidates = (gpus.find_by_pci_id(function.identifier) for function in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS)))
    models = {model.key: model for model in candidates if model}
    reasons = [reason for model in models.values() if (reason := catalogue.explain_absence(model))]
    if reasons:
        return reasons[0]
    named = ", ".join(models) or "no GPU"
    return f"the bus has {named}, and no NVSwitch: a board without them, or they belong to another machine"


@check(
    "fabric_manager.hardware",
    *(*HARDWARE_PROBES, fabric.SUBNET_KERNEL, system.PLATFORM, system.CONTAINER, system.OS_RELEASE),
    moment="preflight",
    evidence="lspci -nn -d 10de:; grep -la SW_MNG /sys/bus/pci/devices/*/vpd; modinfo -n mlx5_ib ib_umad",
)
def hardware(ctx: Ctx) -> Outcome:
    """The host has NVSwitches, and its kernel has the modules through which they are reached."""
    switch_gen = generation(ctx.facts)
    if not switch_gen:
        fix = "take fabric_manager out of this host's spec (fabric_manager: false)"
        return fail("NVSwitches on the bus", useless(ctx.facts), fix)
    if switch_gen >= catalogue.BRIDGED_GENERATION and (missing := lacking(ctx)):
        fix = (
            "install what has them: linux-modules-extra-$(uname -r) on Ubuntu, kernel-modules on EL, "
            "kernel-modules-extra on Amazon Linux, or another stack (rdma: {stack: doca-ofed})"
        )
        message = f"{ctx.facts.get(system.PLATFORM).kernel} has no {' '.join(missing)}"
        return fail(f"{', '.join(catalogue.SUBNET_MODULES)} for NVSwitches of generation {switch_gen}", message, fix)
    ids = [function.identifier for function in ctx.facts.get(pci.NVIDIA_FUNCTIONS)]
    count = sum(identifier in catalogue.list_switches() for identifier in ids)
    seen = (
        counted(count, "NVSwitch")
        if count
        else f"{counted(len(ctx.facts.get(fabric.BRIDGES)), 'bridge')} to NVSwitches"
    )
    return ok(f"{seen} of generation {switch_gen}")


def lacking(ctx: Ctx) -> list[str]:
    """Return the modules that the running kernel lacks, and that nothing in the spec provides."""
    # The kernel's number proves nothing about them: distributions backport.
    brought = getattr(ctx.host.capabilities.get("rdma"), "stack", "") == "doca-ofed"
    if brought or ctx.facts.get(system.CONTAINER) or comes_with_driver(ctx):
        return []
    modules = ctx.facts.get(fabric.SUBNET_KERNEL).modules
    return [name for name in catalogue.SUBNET_MODULES if name not in modules]


def comes_with_driver(ctx: Ctx) -> bool:
    """Return whether nvidia_driver installs the package that has the modules, beside the kernel's headers."""
    # Amazon Linux: https://github.com/aws/aws-parallelcluster/pull/6990
    release = ctx.facts.get(system.OS_RELEASE)
    names = find_packages(release.id, release.version) if "nvidia_driver" in ctx.host.capabilities else None
    return any("-modules-extra-" in form for form in names.headers) if names else False


@check(
    "fabric_manager.subnet_modules",
    *HARDWARE_PROBES,
    moment="preflight",
    evidence="cat /etc/modules-load.d/gpuprov.conf",
)
def subnet_modules(ctx: Ctx) -> Outcome:
    """NVSwitches of generation 4: by the spec, ib_umad is loaded at boot; nothing else loads it."""
    switch_gen = generation(ctx.facts)
    if switch_gen < catalogue.BRIDGED_GENERATION:
        return not_asked("no NVSwitches of generation 4")
    loads = getattr(ctx.host.capabilities.get("kernel"), "modules_load", ())
    if "ib_umad" not in map(underscored, loads):
        message = f"NVSwitches of generation {switch_gen} are reached through ib_umad, which nothing loads at boot"
        fix = "name the GPUs in the spec (gpu, with model and count), or kernel: {modules_load: [ib_umad]}"
        return fail("kernel.modules_load with ib_umad", message, fix)
    return ok("kernel.modules_load has ib_umad")


@check(
    "fabric_manager.resolvable",
    *PROBES,
    moment="preflight",
    evidence="apt-cache madison 'nvidia-fabricmanager*'; dnf -C repoquery --showduplicates 'nvidia-fabric*'; "
    "zypper --no-refresh search -s 'nvidia-fabric*'",
)
def resolvable(ctx: Ctx) -> Outcome:
    """The host's repositories have Fabric Manager, or nvidia-imex on a tray, in the driver's version, and the packages
    it needs with it."""
    decision, driver = decide(ctx), driver_version(ctx.facts)
    expected = f"{what(ctx.fragment)} {driver}".strip()
    if decision.source:
        return package_sources.later(what(ctx.fragment), decision.source)
    if decision.problem:
        return fail(expected if driver else "an installed driver", decision.problem, decision.fix)
    changes = move_packages(dict.fromkeys(decision.subnet, "newest"))
    if driver_wanted(ctx.host) and not decision.packages:  # it comes in the driver's own transaction, and stands there
        message = "resolved with the driver, as one version: nvidia_driver.resolvable"
        return Outcome(status="pass", expected=message, found=message, changes=tuple(changes))
    present = installed(ctx.facts)
    changes += move_packages(decision.packages, present, decision.replaced)
    message = ", ".join(f"{name} {version}" for name, version in decision.packages.items())
    return Outcome(status="pass", expected=driver, found=message, changes=tuple(changes))
