"""Checks of the part `rdma.efa`: AWS's Elastic Fabric Adapter."""

import re
from collections.abc import Callable

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Check, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import build_modules, find_fault, list_changes
from gpuprov.capabilities.rdma.efa.rules import installer_sha256, vendor
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import efa as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.host.environment import SHOWN
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.efa import EFA
from gpuprov.host_code import efa as onhost
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Difference, KernelModule, Modules

Ctx = Context[Rdma]
DRIVER = "efa"


def of_efa(question: Callable[[Ctx], Outcome]) -> Callable[[Ctx], Outcome]:
    """Return the check's function, limited to hosts with this fabric."""

    def judge_efa(ctx: Ctx) -> Outcome:
        return question(ctx) if ctx.fragment.fabric == "efa" else not_asked(f"the fabric is {ctx.fragment.fabric}")

    judge_efa.__doc__ = question.__doc__
    return judge_efa


def options(block: Rdma) -> dict[str, Json]:
    """Return the options that step efa takes besides the installer."""
    return {"kmod": vendor(block), "plugin": block.efa.plugin, "mpi": block.efa.mpi}


@check("rdma.efa_function", EFA, fields=("fabric",), moment="preflight", evidence="lspci -nn -d 1d0f:; modinfo efa")
@of_efa
def function(ctx: Ctx) -> Outcome:
    """The instance has EFA interfaces (PCI 1d0f:efaX), and a driver that is installed or comes with the installer."""
    state, digest = ctx.facts.get(EFA), installer_sha256(ctx.fragment)
    if not state.functions:
        fix = (
            f"{state.product or 'the instance'}: launch it with network interfaces of type efa or efa-only; types "
            "that can are in the list of aws ec2 describe-instance-types --filters "
            "Name=network-info.efa-supported,Values=true"
        )
        known = catalogue.read_efa_file().functions
        return fail(f"PCI functions {known[0].id} to {known[-1].id}", "none", fix)
    module = state.running
    if not (module and module.path) and not state.loaded and not (vendor(ctx.fragment) and digest):
        return fail(
            "a driver efa", "the kernel has none, and the spec names no installer", 'rdma.efa.installer: "1.47.0"'
        )
    return ok(counted(len(state.functions), "function"))


@check("rdma.efa_ofed", EFA, fields=("stack",), moment="preflight", evidence="modinfo -n ib_core")
@of_efa
def ofed(ctx: Ctx) -> Outcome:
    """The kernel's ib_core is its own: with OFED's, the efa driver brings up no device."""
    core = ctx.facts.get(EFA).core
    if core and "/kernel/drivers/" not in core and core != "(builtin)":
        fix = (
            "remove OFED or DOCA-OFED (mlnx-ofed-kernel-dkms, ofed_uninstall.sh): AWS's instances have no "
            "adapter for it"
        )
        return fail("the kernel's own ib_core", core, fix)
    return ok(core or "ib_core is not on disk")


@check(
    "rdma.efa_source", EFA, fields=("efa", "stack"), evidence=f"cat {onhost.RECORD} /opt/amazon/efa_installed_packages"
)
@of_efa
def source(ctx: Ctx) -> Outcome:
    """The installer with that checksum was run with these options, and its packages are those that it recorded."""
    state, digest = ctx.facts.get(EFA), installer_sha256(ctx.fragment)
    if not digest:
        return not_asked("the spec names no installer: the software was there")
    expected = f"the installer with SHA-256 {digest}"
    if why := onhost.explain_installation(state.record, digest, onhost.build_options(options(ctx.fragment))):
        moved = Difference(
            "aws-efa-installer", state.installer, ctx.fragment.efa.installer or digest[:12], kind="package"
        )
        return fail(expected, why, APPLY, changes=list_changes([moved]))
    if ctx.fragment.efa.installer and state.installer != ctx.fragment.efa.installer:
        message = f"/opt/amazon/efa_installed_packages says {state.installer or 'nothing'}: somebody ran another since"
        fix = f"rm {onhost.RECORD}, on the host, then {APPLY}"
        return fail(f"installer {ctx.fragment.efa.installer}", message, fix)
    return ok(f"{expected}, version {state.installer or 'unknown'}")


@check(
    "rdma.efa_driver",
    EFA,
    fields=("stack", "efa"),
    evidence="modinfo efa; cat /sys/module/efa/version; lspci -nnk -d 1d0f:",
)
@of_efa
def driver(ctx: Ctx) -> Outcome:
    """The driver is loaded, is both the build on disk and the version that the spec asks for, and every EFA function is
    bound to it."""
    state, by_vendor = ctx.facts.get(EFA), vendor(ctx.fragment)
    whose = "AWS's" if by_vendor else "the kernel's own"
    expected = f"{whose} driver efa, loaded"
    loaded, module = Modules(loaded=(DRIVER,) * state.loaded), KernelModule(name=DRIVER, loaded=True)
    if fault := find_fault(module, loaded, expected, "not loaded", fix=f"modprobe efa; dmesg | grep -w efa; {APPLY}"):
        return fault
    used = ", ".join(f"{name} ({pid})" for pid, name in state.users)
    message = "another build than the one on disk" if state.version else "the kernel's own, and another is on disk"
    message += f"; in use by {used}" if used else ""
    reason = f"another build of efa is loaded, in use by {used}" if used else ""
    fix = "reboot, or end them, then gpuprov apply" if used else APPLY
    other = KernelModule(name=DRIVER, loaded=True, outdated="another build" * state.stale, reboot=reason)
    if fault := find_fault(other, loaded, expected, f"the loaded module is {message}", fix=fix):
        return fault
    # AWS's driver has a version, the kernel's own has none.
    if by_vendor and installer_sha256(ctx.fragment) and not state.version:
        fix = f"{APPLY}; modinfo -n efa says which one modprobe takes; dkms status efa"
        return fail(expected, "the kernel's own driver is loaded, which has no version", fix)
    unbound = [address for address, name in state.functions if name != DRIVER]
    if unbound:
        return fail("each EFA function bound to efa", f"not bound: {' '.join(unbound)}", "dmesg | grep -w efa")
    return ok(f"efa {state.version}".strip() if state.version else "the kernel's own efa", expected)


@check(
    "rdma.efa_interfaces",
    EFA,
    DEVICES,
    fields=("count",),
    evidence="cat /sys/class/dmi/id/product_name; ls /sys/class/infiniband",
)
@of_efa
def interfaces(ctx: Ctx) -> Outcome:
    """The host has as many EFA devices as its instance type can have, unless rdma.count gives another number.

    An interface that was left out at launch costs its share of the bandwidth, and nothing reports it.
    """
    state = ctx.facts.get(EFA)
    count = sum(device.driver == DRIVER for device in ctx.facts.get(DEVICES))
    most = catalogue.count_devices(state.product)
    if ctx.fragment.count:
        return not_asked("rdma.count says how many, and rdma.devices compares it")
    if not most:
        return skip(
            f"how many {state.product or 'this machine'} can have is not in the catalogue; rdma.count: {count} says it"
        )
    if count != most:
        fix = (
            "a network interface of type efa or efa-only on each network card of the launch template; or "
            f"rdma.count: {count}"
        )
        return fail(f"{most} EFA devices on {state.product}", str(count), fix)
    return ok(f"{count} on {state.product}")


@check("rdma.efa_libfabric", EFA, DEVICES, fields=("efa",), evidence="/opt/amazon/efa/bin/fi_info -p efa -t FI_EP_RDM")
@of_efa
def libfabric(ctx: Ctx) -> Outcome:
    """libfabric's efa provider offers a reliable endpoint on each EFA device, which NCCL's plugin and MPI use."""
    state = ctx.facts.get(EFA)
    names = [device.name for device in ctx.facts.get(DEVICES) if device.driver == DRIVER]
    expected = f"an endpoint FI_EP_RDM of provider efa on {counted(len(names), 'device')}"
    if state.domains is None:
        return fail(expected, "no fi_info", f'rdma.efa.installer: "1.47.0", then {APPLY}')
    if not state.domains:
        fix = 'gpuprov explain "fi_getinfo: -61"; dmesg | grep -w efa; ls /dev/infiniband'
        return fail(expected, f"fi_info: {state.complaint or 'nothing'}", fix)
    missing = [name for name in names if name not in state.domains]
    if missing or not names:
        return fail(expected, f"none on {' '.join(missing) or 'any device'}", "rdma link; dmesg | grep -w efa")
    return ok(counted(len(state.domains), "device"), expected)


@check(
    "rdma.efa_plugin",
    EFA,
    fields=("efa",),
    evidence="ldconfig -p | grep libnccl-net; cat /etc/ld.so.conf.d/100_ofinccl.conf",
)
@of_efa
def plugin(ctx: Ctx) -> Outcome:
    """The dynamic linker finds AWS's plugin before any other; without it NCCL uses TCP sockets, and only its debug
    output shows that."""
    if not ctx.fragment.efa.plugin:
        return not_asked("plugin is false")
    state, expected = ctx.facts.get(EFA), f"{catalogue.PLUGIN}/lib/libnccl-net.so"
    names = [path for path in state.plugins if re.search(r"/libnccl-net\.so", path)]
    if not names:
        named = f", but {' '.join(state.plugins)}" if state.plugins else ""
        fix = f'{APPLY} with rdma.efa.installer ("1.38.0" or newer has it); ldconfig'
        return fail(expected, f"no libnccl-net.so{named}", fix)
    if not names[0].startswith(f"{catalogue.PLUGIN}/"):
        return fail(
            expected,
            f"{names[0]} comes first",
            "take its folder out of /etc/ld.so.conf.d, or its package away; ldconfig",
        )
    version = next((value for name, value in state.packages.items() if name.startswith("libnccl-ofi")), "")
    return ok(f"{names[0]} {version}".strip(), expected)


@check(
    "rdma.efa_gpudirect",
    EFA,
    pci.NVIDIA_FUNCTIONS,
    nvidia.DRIVER,
    fields=("efa",),
    evidence="cat /sys/class/infiniband/*/device/p2p",
)
@of_efa
def gpudirect(ctx: Ctx) -> Outcome:
    """If the spec asks for it, the driver shows a provider of GPU memory on each device, as it does once NVIDIA's
    driver is loaded."""
    if not ctx.fragment.efa.gpudirect:
        return not_asked("by DMA-BUF, or not asked for: gpudirect_rdma")
    state = ctx.facts.get(EFA)
    if not pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS)):
        return skip("no NVIDIA GPU on the PCI bus")
    expected = "a provider of GPU memory in the file p2p of each EFA device"
    if not state.p2p:
        return fail(
            expected,
            "the driver has no such file: it is the kernel's own",
            "stack: efa-vendor; or gpudirect: false, and DMA-BUF",
        )
    without = [name for name, value in state.p2p.items() if value in ("", "0")]
    if without:
        suffix = "" if ctx.facts.get(nvidia.DRIVER).version else "; NVIDIA's driver is not loaded"
        fix = (
            "load NVIDIA's driver first; from its branch 580 on, efa 2.17.3 or newer is needed; rmmod efa; modprobe efa"
        )
        return fail(expected, f"empty on {' '.join(without)}{suffix}", fix)
    return ok(", ".join(sorted(set(state.p2p.values()))), expected)


@check("rdma.efa_environment", EFA, fields=("efa",), evidence=f"grep -rE '(FI|RDMAV)_' {SHOWN}")
@of_efa
def environment(ctx: Ctx) -> Outcome:
    """No login sets a variable that makes libfabric skip EFA, or do without RDMA."""
    wrong = [
        (file, name, value, rule.text)
        for file, name, value in ctx.facts.get(EFA).environment
        for rule in catalogue.read_efa_file().harmful
        if rule.name == name and (not rule.value or re.fullmatch(rule.value, value))
    ]
    if wrong:
        message = "; ".join(f"{file} says {name}={value}: {text}" for file, name, value, text in wrong)
        return fail("nothing that leaves EFA out", message, f"take the line out of {wrong[0][0]}")
    return ok("nothing interferes")


@check(
    "rdma.efa_kernels",
    EFA,
    fields=("stack",),
    moment="next-boot",
    evidence="dkms status efa; modinfo -k $(uname -r) efa",
)
@of_efa
def kernels(ctx: Ctx) -> Outcome:
    """Each installed kernel has the driver that the spec asks for, so that EFA also works after booting another
    kernel."""
    state = ctx.facts.get(EFA)
    needs_version = vendor(ctx.fragment) and bool(installer_sha256(ctx.fragment))
    without = [kernel.release for kernel in state.kernels if not kernel.path or (needs_version and not kernel.version)]
    expected = f"{'AWS' if needs_version else 'a'} driver efa for each installed kernel"
    if without or not state.kernels:
        changes = build_modules("efa", dict.fromkeys(without, ""))
        fix = "the kernel's headers, then dkms autoinstall -k KERNEL; or remove that kernel"
        return fail(expected, f"none for {' '.join(without) or 'any kernel'}", fix, changes=changes)
    return ok(counted(len(state.kernels), "kernel"), expected)


CHECKS: tuple[Check, ...] = (
    *(function, ofed, source, driver, interfaces, libfabric, plugin),
    *(gpudirect, environment, kernels),
)
EXPORT_PROBES = (EFA,)


def exported(facts: Facts) -> dict[str, Json]:
    """Return the host's EFA as `stack` and `efa` of a spec; a version whose checksum is unknown is omitted."""
    state = facts.get(EFA)
    known = state.installer if catalogue.find_installer(state.installer) else ""
    plugin = any(path.startswith(f"{catalogue.PLUGIN}/") for path in state.plugins)
    ran = onhost.explain_installation(
        state.record, getattr(catalogue.find_installer(known), "sha256", "?"), []
    ).startswith("it ran")
    return {
        "stack": "efa-vendor" if state.version else "inbox",
        "efa": {"installer": known if ran else "", "plugin": plugin},
    }
