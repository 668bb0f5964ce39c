"""Checks of Fabric Manager as it is now: version, hold, process, registration of the GPUs, settings in force, subnet
manager."""

import re

import msgspec

from gpuprov.capabilities import answers
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared, find_missing, judge, judge_package, judge_program
from gpuprov.capabilities.driver import explain_absent_driver
from gpuprov.capabilities.fabric_manager.fragment import (
    DRIVER_PROBES,
    HARDWARE_PROBES,
    FabricManager,
    driver_version,
    generation,
    held_packages,
    hold,
    library_part,
    package,
)
from gpuprov.capabilities.fabric_manager.log import JOURNAL, log
from gpuprov.catalog import fabric as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.kernel import boot, modules
from gpuprov.hardware.topology import fabric as rules
from gpuprov.resources import KernelModule, Modules

Ctx = Context[FabricManager]
UNIT, DAEMON = catalogue.UNIT, "nv-fabricmanager"
RESTART = rules.RESTART


@check(
    "fabric_manager.version",
    *(*DRIVER_PROBES, fabric.PACKAGES, fabric.DAEMON),
    evidence="nv-fabricmanager --version; dpkg -l 'nvidia-fabricmanager*'; rpm -qa 'nvidia-fabric*'; cat "
    "/proc/driver/nvidia/version",
)
def version(ctx: Ctx) -> Outcome:
    """Package and program have the driver's full version, as installed and as loaded: Fabric Manager refuses any
    other."""
    driver, own_package = driver_version(ctx.facts), package(ctx.facts)
    loaded, program = ctx.facts.get(nvidia.DRIVER).version, ctx.facts.get(fabric.DAEMON).version
    expected = f"Fabric Manager {driver}" if driver else "a driver, and Fabric Manager of its version"
    if own_package is None:
        fix = "gpuprov apply"
        if program:
            fix = f"{catalogue.PROGRAM} {program} belongs to no package: remove it, then gpuprov apply"
        return fail(expected, "no Fabric Manager package is installed", fix)
    wrong = judge_package(ctx.facts, own_package, driver, expected) or judge_program(
        ctx.facts, catalogue.PROGRAM, program, driver, expected
    )
    if wrong:
        return wrong
    if loaded and loaded != driver:
        reason = f"the loaded driver is {loaded}, Fabric Manager and the driver's packages are {driver}"
        return fail(expected, reason, "reload the driver, or reboot", reboot=reason)
    return ok(f"{own_package.name} {own_package.version}", expected)


@check(
    "fabric_manager.held",
    *(fabric.PACKAGES, system.OS_RELEASE, pci.NVIDIA_FUNCTIONS, *answers.HOLDING),
    moment="next-boot",
    evidence=answers.SHOWN,
)
def held(ctx: Ctx) -> Outcome:
    """Fabric Manager, NVLSM and the library that DCGM needs are held as the driver's set is: no upgrade moves one
    alone."""
    own_packages = held_packages(ctx.facts, library_part(ctx.host, ctx.facts))
    return answers.held(ctx.facts, own_packages, "Fabric Manager", hold=hold(ctx.host))


@check("fabric_manager.registered", *(*HARDWARE_PROBES, fabric.STATE, nvidia.DRIVER, system.CONTAINER))
def registered(ctx: Ctx) -> Outcome:
    """Every GPU is registered with the fabric (state Completed, status Success) and healthy in it, which NVLink and
    CUDA wait for. If virtual machines share the NVSwitches, a GPU is In Progress until a partition with it is
    activated."""
    switch_gen = generation(ctx.facts)
    if not switch_gen:
        return fail("NVSwitches on the bus", "none", "see fabric_manager.hardware; dmesg | grep -i nvswitch")
    if switch_gen < catalogue.REGISTERS_SINCE:
        return not_asked(
            f"GPUs on NVSwitches of generation {switch_gen} do not register: fabric_manager.active is the proof"
        )
    shared = ctx.fragment.fabric_mode != "bare-metal"
    functions = pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS))
    lent = [gpu.address for gpu in functions if shared and pci.is_lent(gpu.driver)]
    on_bus = sorted({gpu.address for gpu in functions}.difference(lent))
    states = {gpu.bus: gpu for gpu in ctx.facts.get(fabric.STATE)}
    expected = f"{counted(len(on_bus), 'GPU')}: Completed, Success{', or In Progress' if shared else ''}"
    if reason := explain_absent_driver(ctx.facts):
        return skip(reason)
    if not ctx.facts.get(nvidia.DRIVER).version:
        return fail(expected, "no NVIDIA module is loaded", "see nvidia_driver.loaded")
    if not states and on_bus:
        return fail(expected, "nvidia-smi reports no fabric state of any GPU", "see nvidia_driver.user_space")
    bad, waiting = [], 0
    for bus in on_bus:
        gpu = states.get(bus)
        if wrong := rules.explain_unregistered(gpu, shared=shared):
            bad.append(f"{bus} {wrong}")
        elif gpu and gpu.state == "In Progress":
            waiting += 1
    if bad:
        return fail(expected, "; ".join(bad), f"gpuprov explain 802; {RESTART}")
    statuses = [f"{counted(len(on_bus) - waiting, 'GPU')}: Completed, Success"] * (len(on_bus) > waiting)
    statuses += [f"{waiting} In Progress until a partition with them is activated"] * bool(waiting)
    statuses += [f"{len(lent)} lent to virtual machines"] * bool(lent)
    return ok("; ".join(statuses), expected)


@check("fabric_manager.settings", fabric.DAEMON, fields=("fabric_mode", "settings"))
def settings(ctx: Ctx) -> Outcome:
    """The running daemon was started with fabricmanager.cfg, in which fabric_manager.files compares the settings."""
    process, file = ctx.facts.get(fabric.DAEMON).process(DAEMON), catalogue.get_configuration_file()
    if process is None:
        return not_asked("no daemon runs: see fabric_manager.active")
    if other := _find_other_file(process.command, file):
        return fail(f"the daemon reads {file}", f"it was started with {other}", f"systemctl cat {UNIT}")
    return ok(f"the daemon reads {file}")


def _find_other_file(command: str, file: str) -> str:
    """Return the configuration file that a command line names, if it is another."""
    match = re.search(r"(?:-c|--config)[ =](\S+)", command)
    return match[1] if match and match[1] != file else ""


@check(
    "fabric_manager.subnet_manager",
    *(
        *HARDWARE_PROBES,
        system.OS_RELEASE,
        fabric.PACKAGES,
        fabric.DAEMON,
        modules.LOADED,
        modules.BUILT_IN,
        nvidia.DRIVER,
        system.CONTAINER,
    ),
    evidence="pgrep -af nvlsm; lsmod | grep -E 'ib_umad|mlx5_core'",
)
def subnet_manager(ctx: Ctx) -> Outcome:
    """NVSwitches of generation 4: NVLSM is installed and running, and the modules through which it reaches them are
    loaded."""
    switch_gen = generation(ctx.facts)
    if not switch_gen:
        return skip("no NVSwitch on the bus: see fabric_manager.registered")
    if switch_gen < catalogue.BRIDGED_GENERATION:
        return not_asked(f"NVSwitches of generation {switch_gen} need none")
    names = catalogue.SUBNET_PACKAGES[family(ctx.facts.get(system.OS_RELEASE)) or "debian"]
    expected = f"{', '.join(names)} installed, nvlsm alive"
    if missing := find_missing(names, ctx.facts.get(fabric.PACKAGES), expected=expected):
        return missing
    if not ctx.facts.get(system.CONTAINER):
        present = {*ctx.facts.get(modules.LOADED), *ctx.facts.get(modules.BUILT_IN)}
        needed = Group(
            tuple(KernelModule(name=name, loaded=True) for name in catalogue.SUBNET_MODULES),
            modules=Modules(loaded=present),
            expected=f"{expected}, {', '.join(catalogue.SUBNET_MODULES)} loaded",
        )
        if absent := [difference.device for difference in needed.compare()]:
            fix = f"modprobe -a {' '.join(absent)} (Ubuntu: linux-modules-extra has them); systemctl restart {UNIT}"
            return judge(msgspec.structs.replace(needed, fix=fix))
    process = ctx.facts.get(fabric.DAEMON).process("nvlsm")
    if process is None and (reason := explain_absent_driver(ctx.facts)):
        return skip(reason)
    if process is None:
        return fail(expected, f"no nvlsm process in {UNIT}", f"{JOURNAL}; tail /var/log/nvlsm.log")
    return ok(f"nvlsm alive (process {process.pid})", expected)


@compared("fabric_manager.subnet_manager_at_boot", *(*HARDWARE_PROBES, boot.MODULES_LOAD), moment="next-boot")
def subnet_manager_at_boot(ctx: Ctx) -> Group | Outcome:
    """NVSwitches of generation 4: ib_umad is loaded at boot, before Fabric Manager starts; nothing else loads it."""
    switch_gen = generation(ctx.facts)
    if not switch_gen:
        return skip("no NVSwitch on the bus: see fabric_manager.registered")
    if switch_gen < catalogue.BRIDGED_GENERATION:
        return not_asked(f"NVSwitches of generation {switch_gen} need no module of InfiniBand")
    return Group(
        (KernelModule(name="ib_umad", at_boot=True),),
        modules=Modules(at_boot=ctx.facts.get(boot.MODULES_LOAD)),
        expected="ib_umad in modules-load.d",
        fix="name the GPUs in the spec (gpu: {model: B200, count: 8}): then the kernel block gets ib_umad by itself",
    )


CHECKS = (*(version, held, log, registered, settings), *(subnet_manager, subnet_manager_at_boot))
