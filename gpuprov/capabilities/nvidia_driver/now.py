"""Checks of the driver as it is now: packages, holds, kernel modules, user space, parameters."""

from gpuprov.capabilities import answers
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.nvidia_driver import builds, gsp
from gpuprov.capabilities.nvidia_driver.fragment import (
    BASE_PROBES,
    NvidiaDriver,
    decide,
    needed,
    package_names,
    versions,
)
from gpuprov.capabilities.nvidia_driver.transaction import installed_set, installed_version
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import NotRecorded
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.family import words
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software.packages import PACKAGES
from gpuprov.rules import reload, resolve

Ctx = Context[NvidiaDriver]
LISTED = "dpkg -l '*nvidia*' 'libcuda*'; rpm -qa '*nvidia*'"


@check("nvidia_driver.packages", *BASE_PROBES, fields=("version",), evidence=LISTED)
def packages(ctx: Ctx) -> Outcome:
    """Every package of the driver set is installed completely, at one version that the spec asks for."""
    decision = decide(ctx.fragment, ctx.facts)
    names = needed(ctx.fragment, ctx.facts, decision.flavour)
    installed = ctx.facts.get(PACKAGES)
    missing = [name for name in names if name not in installed]
    broken = [name for name in names if name in installed and not installed[name].whole]
    own_packages = installed_set(ctx.fragment, ctx.facts)
    present = sorted({resolve.upstream(package.version) for package in own_packages.values()})
    expected = f"{ctx.fragment.version} ({decision.flavour}), {counted(len(names), 'package')} at one version"
    fix = "gpuprov apply; gpuprov plan shows each package"
    if missing:
        return fail(expected, f"not installed: {' '.join(missing)}", fix)
    if broken:
        return fail(
            expected,
            f"incomplete: {' '.join(broken)}",
            f"{words(ctx.facts.get(system.OS_RELEASE)).repair}; gpuprov apply",
        )
    if len(present) > 1:
        listed = " ".join(
            f"{p.name}={resolve.upstream(p.version)}" for p in sorted(own_packages.values(), key=lambda p: p.name)
        )
        return fail(expected, f"mixed versions: {listed}", fix)
    if not resolve.satisfies(present[0], ctx.fragment.version):
        return fail(expected, present[0], fix)
    return ok(f"{present[0]}, {counted(len(own_packages), 'package')}", expected)


@check(
    "nvidia_driver.flavour",
    *BASE_PROBES,
    nvidia.DRIVER,
    system.CONTAINER,
    fields=("kernel_modules",),
    evidence=f"{LISTED}; cat /proc/driver/nvidia/version",
)
def flavour(ctx: Ctx) -> Outcome:
    """The kernel modules are of the wanted flavour, as installed and as loaded; both flavours are never installed at
    once."""
    loaded, requested = ctx.facts.get(nvidia.DRIVER), ctx.fragment.kernel_modules
    running = "open" if loaded.open else "proprietary"
    try:
        decision = decide(ctx.fragment, ctx.facts)
    except NotRecorded:
        # Its packages are not in the record; the spec may say enough.
        if not loaded.version or requested in ("auto", running):
            raise
        return fail(requested, f"loaded: {running}", "gpuprov plan, where the host can be reached")
    present = list(resolve.kernel_package(package_names(ctx.fragment, ctx.facts).sets, versions(ctx.facts)))
    expected = f"{decision.flavour}: {decision.reason}"
    if present != [decision.flavour]:
        return fail(expected, " and ".join(present) or "none installed", "gpuprov apply switches in one transaction")
    if loaded.version and running != decision.flavour and not ctx.facts.get(system.CONTAINER):
        fix = "the module on disk is right: reload it or reboot"
        return fail(expected, f"loaded: {running}", fix, reboot="the other flavour is loaded")
    return ok(decision.flavour, expected)


@check(
    "nvidia_driver.held",
    *(*BASE_PROBES, *answers.HOLDING),
    fields=("hold",),
    moment="next-boot",
    evidence=answers.SHOWN,
)
def held(ctx: Ctx) -> Outcome:
    """Every package of the set is held, and holding works (or none is, with `hold: false`): no upgrade moves one of
    them alone."""
    return answers.held(ctx.facts, installed_set(ctx.fragment, ctx.facts), "the driver", hold=ctx.fragment.hold)


@check(
    "nvidia_driver.loaded",
    *BASE_PROBES,
    nvidia.DRIVER,
    system.CONTAINER,
    fields=("version",),
    evidence="cat /proc/driver/nvidia/version; dkms status",
)
def loaded(ctx: Ctx) -> Outcome:
    """The loaded kernel module has the version of its package: a mismatch breaks every newly started program."""
    if not pci.served(functions := ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        lent = "all GPUs are lent to virtual machines" if pci.gpus(functions) else "no NVIDIA GPU on the PCI bus"
        return skip(f"{lent}: the module cannot load")
    if container := ctx.facts.get(system.CONTAINER):
        return skip(f"{container} container: the loaded module is the machine's, not this host's")
    running = ctx.facts.get(nvidia.DRIVER).version
    try:
        version = installed_version(ctx.fragment, ctx.facts)
    except NotRecorded:
        # Its packages are not in the record; the spec may say enough.
        if not running or resolve.satisfies(running, ctx.fragment.version):
            raise
        return fail(ctx.fragment.version, running, "gpuprov plan, where the host can be reached")
    if not running:
        change = Change(kind="module", name="nvidia", after="loaded")
        return fail(
            version or "loaded", "no NVIDIA module is loaded", "modprobe nvidia; dmesg | grep NVRM", changes=[change]
        )
    if running != version:
        change = Change(kind="module", name="nvidia", before=running, after=version)
        reason = f"the loaded module is {running}, its package is {version or 'not installed'}"
        return fail(
            version or "a module of an installed package",
            running,
            "stop the GPU's users and reload the module, or reboot",
            changes=[change],
            reboot=reason,
        )
    return ok(running)


@check(
    "nvidia_driver.user_space",
    *(*BASE_PROBES, nvidia.LIBRARIES, nvidia.SMI, nvidia.DRIVER, system.CONTAINER),
    fields=("version",),
    evidence="nvidia-smi; cat /proc/driver/nvidia/version; ldconfig -p | grep -E 'libcuda|libnvidia-ml'",
)
def user_space(ctx: Ctx) -> Outcome:
    """The libraries that programs load have the packages' version, and nvidia-smi gets an answer if there is a GPU."""
    libraries = ctx.facts.get(nvidia.LIBRARIES)
    present = {resolve.upstream(package.version) for package in installed_set(ctx.fragment, ctx.facts).values()}
    if ctx.fragment.source == "runfile":
        present = {ctx.fragment.version}
    newest = max(present, key=resolve.order, default="")
    absent = [name for name in ("libcuda", "libnvidia-ml") if name not in libraries]
    if absent:
        fix = "gpuprov apply; ldconfig -p | grep nvidia"
        return fail(f"libcuda and libnvidia-ml {newest}".strip(), f"not found: {' '.join(absent)}", fix)
    listed = " ".join(f"{name} {version}" for name, version in sorted(libraries.items()))
    if not newest:
        fix = "these libraries came from elsewhere: " + nvidia.LIBRARIES.evidence
        return fail("libraries from driver packages", f"no driver package is installed, yet {listed} is", fix)
    wrong = [f"{name} {version}" for name, version in libraries.items() if version != newest]
    if wrong:
        elsewhere = "another installation's libraries win: " + nvidia.LIBRARIES.evidence
        mixed = "the packages are of several versions, which no reboot fixes: gpuprov apply"
        return fail(newest, " ".join(wrong), mixed if len(present) > 1 else elsewhere)
    return _judge_answer(ctx, newest) or ok("; ".join((listed, *ctx.facts.get(nvidia.SMI).warnings)))


def _judge_answer(ctx: Ctx, version: str) -> Outcome | None:
    """Return the failure of nvidia-smi's answer; None if it is right, or if no GPU could answer."""
    kind = ctx.facts.get(system.CONTAINER)
    running = ctx.facts.get(nvidia.DRIVER).version
    smi = ctx.facts.get(nvidia.SMI)
    on_bus = {gpu.address for gpu in pci.driven(ctx.facts.get(pci.NVIDIA_FUNCTIONS))}
    if not on_bus or (kind and (not running or "communicate" in smi.complaint)):
        return None  # a container without device files has no GPU, however many its machine has
    if kind and running != version:
        fix = f"a container needs the user space of the machine's driver: {running}"
        return fail(running, f"user space {version}, and the machine's loaded module is {running}", fix)
    if smi.complaint:
        reason = "user space and kernel module differ" if "mismatch" in smi.complaint else ""
        return fail(
            f"nvidia-smi answers ({version})", smi.complaint, f'gpuprov explain "{smi.complaint[:60]}"', reboot=reason
        )
    fix = "the driver does not run it: dmesg | grep -E 'NVRM|Xid'; gpuprov explain 79"
    if kind:  # it sees the machine's whole bus, and has the GPUs that it was given
        count = (ctx.host.gpu.count if ctx.host.gpu else None) or 1
        return None if len(smi.gpus) >= count else fail(counted(count, "GPU"), f"nvidia-smi lists {len(smi.gpus)}", fix)
    lost = sorted(on_bus - {gpu.bus for gpu in smi.gpus})
    return (
        fail(f"nvidia-smi lists all {counted(len(on_bus), 'GPU')} on the bus", f"not listed: {' '.join(lost)}", fix)
        if lost
        else None
    )


@check(
    "nvidia_driver.module_parameters",
    *(*BASE_PROBES, modules.MODPROBE, nvidia.PARAMETERS, system.CONTAINER),
    fields=("module_parameters",),
    evidence="modprobe -c | grep '^options nvidia'; cat /proc/driver/nvidia/params",
)
def module_parameters(ctx: Ctx) -> Outcome:
    """Each parameter is configured for the module that loads, which supports it, and is in effect in the loaded
    module."""
    parameters = {
        key: str(int(v)) if isinstance(v, bool) else str(v) for key, v in ctx.fragment.module_parameters.items()
    }
    if not parameters:
        return not_asked()
    listed = " ".join(f"{key}={value}" for key, value in parameters.items())
    decision = decide(ctx.fragment, ctx.facts)
    if gsp.switched_off(ctx.fragment) and decision.flavour == "open":
        return fail(listed, f"{gsp.KEY} has no effect: {gsp.WHY}", gsp.WITHOUT)
    names = package_names(ctx.fragment, ctx.facts).modules
    module = "nvidia" if ctx.fragment.source == "runfile" else modules.underscored(names[decision.flavour])
    configured = ctx.facts.get(modules.MODPROBE).options.get(module, {})
    wrong = [
        f"{key}={configured.get(key, 'missing')}" for key, value in parameters.items() if configured.get(key) != value
    ]
    if wrong:
        change = Change(kind="file", name="/etc/modprobe.d/gpuprov.conf", before=" ".join(wrong), after=listed)
        others = ctx.facts.get(modules.MODPROBE).list_moves({module: parameters})
        fix = "; ".join([*others, "gpuprov apply", "modprobe -c | grep nvidia"])
        return fail(listed, f"configured: {' '.join(wrong)}", fix, changes=[change])
    effective = {} if ctx.facts.get(system.CONTAINER) else ctx.facts.get(nvidia.PARAMETERS)
    unknown = [key for key in parameters if effective and key not in effective]
    if unknown:
        fix = f"a misspelled name, or of another branch: modinfo -p {module} | grep NVreg_"
        return fail(listed, f"the loaded module does not know {' '.join(unknown)}", fix)
    late = [
        f"{k}={effective[k]}"
        for k, v in parameters.items()
        if effective and reload.shown_value(effective[k]) != reload.shown_value(v)
    ]
    if late:
        reason = f"the loaded module runs with {' '.join(late)}"
        return fail(listed, reason, "reload the module, or reboot", reboot=reason)
    return ok(listed)


CHECKS = (packages, flavour, held, *builds.CHECKS, loaded, user_space, module_parameters)
