"""Checks of the host's method and its reason, of dma-buf, and of leftovers of another method."""

from __future__ import annotations

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared, find_fault
from gpuprov.capabilities.gpudirect_rdma import platforms
from gpuprov.capabilities.gpudirect_rdma.decision import PROBES, Decision, decide, ground
from gpuprov.capabilities.gpudirect_rdma.fragment import OVERRIDES, GpudirectRdma
from gpuprov.capabilities.gpudirect_rdma.rules import OVERRIDE
from gpuprov.catalog.rdma import gpudirect as catalogue
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.systemd import UnitState
from gpuprov.facts.probes.host.virtualization import MACHINE
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.rdma.gpudirect import GPUDIRECT
from gpuprov.resources import KernelModule, Modules, Setting

Ctx = Context[GpudirectRdma]
P2PDMA = "CONFIG_PCI_P2PDMA"
MISSING = UnitState()


def decided(ctx: Ctx) -> Decision:
    """Return the method of this host, by its spec and its facts."""
    return decide(ground(ctx.host, ctx.facts), ctx.fragment)


def undecided(decision: Decision) -> Outcome:
    """Return the outcome of a check if no method is possible, or none can be determined yet."""
    if decision.problem:
        return fail("a method that this host can have", decision.problem, decision.fix)
    return skip(f"{decision.reason}, and there are none yet")


def without(decision: Decision) -> Outcome:
    """Return the outcome of the other checks in that case."""
    return skip(f"no method: {decision.problem or decision.reason}; see gpudirect_rdma.dmabuf")


@check(
    "gpudirect_rdma.method",
    *(*PROBES, system.CONTAINER, MACHINE),
    fields=("method",),
    moment="preflight",
    evidence="modinfo -F license nvidia; uname -r; cat /proc/driver/nvidia/version; ls /usr/src/ofa_kernel",
)
def method(ctx: Ctx) -> Outcome:
    """The host supports the method that the spec asks for; for auto: shows the method and the reason."""
    decision = decided(ctx)
    if decision.problem or not decision.method:
        return undecided(decision)
    kernels = ctx.facts.get(GPUDIRECT).kernels
    if decision.method == "nv_peer_mem" and not any("nv_peer_mem" in kernel.modules for kernel in kernels):
        fix = "method nvidia_peermem, which took its place; or install nvidia-peer-memory-dkms yourself"
        message = f"{ctx.host.name} has no module of that name, and gpuprov does not install it"
        return fail("an installed nv_peer_mem", message, fix)
    message = f"{decision.method}: {decision.reason}"
    if kind := ctx.facts.get(system.CONTAINER):
        message += f"; a {kind} container has the modules of its machine"
    elif ctx.facts.get(MACHINE).kind:
        message += (
            "; in a virtual machine the hypervisor must give GPU and RDMA device one PCIe root complex, with "
            "ACS and ATS for it"
        )
    # The plan shows what auto comes to, and why.
    decides = ctx.fragment.method == "auto"
    change = Change(
        kind="setting", name="gpudirect_rdma.method", before="auto", after=f"{decision.method}, since {decision.reason}"
    )
    return Outcome(status="pass", expected=message, found=message, changes=(change,) * decides)


@check(
    "gpudirect_rdma.dmabuf",
    *(*PROBES, nvidia.DRIVER, system.CONTAINER),
    fields=("method",),
    evidence="modinfo -F license nvidia; grep -E 'DMA_SHARED_BUFFER|ON_DEMAND_PAGING|P2PDMA' /boot/config-$(uname -r)",
)
def dmabuf(ctx: Ctx) -> Outcome:
    """If the method is dma-buf: every kernel that can boot has open kernel modules, and an RDMA stack that supports
    dma-buf."""
    decision = decided(ctx)
    if decision.method in ("nvidia_peermem", "nv_peer_mem"):
        return not_asked(f"the method is {decision.method}: {decision.reason}")
    if decision.problem or not decision.method:
        return undecided(decision)
    state, loaded = ctx.facts.get(GPUDIRECT), ctx.facts.get(nvidia.DRIVER)
    expected = "open kernel modules, and an ib_uverbs that knows dma-buf, for every kernel"
    closed = [kernel.release for kernel in state.targets() if kernel.nvidia and not kernel.open]
    bare = [kernel.release for kernel in state.targets() if not kernel.nvidia]
    if closed:
        return fail(
            expected, f"proprietary NVIDIA modules for {', '.join(closed)}", "nvidia_driver: {kernel_modules: open}"
        )
    if bare:
        return fail(expected, f"no NVIDIA module for {', '.join(bare)}", f"{APPLY}, with nvidia_driver in the spec")
    contained = ctx.facts.get(system.CONTAINER)
    if loaded.version and not loaded.open and not contained:
        return fail(
            expected, f"the loaded NVIDIA module {loaded.version} is proprietary", "reload the driver, or reboot"
        )
    # Headers alone, as a container has them, come without the kernel's own modules.
    old = [kernel.release for kernel in state.targets() if kernel.uverbs != "yes" and (kernel.bootable or kernel.core)]
    if old:
        message = f"ib_uverbs of {', '.join(old)} is not there, or has no ib_umem_dmabuf_get"
        return fail(
            expected,
            message,
            "a kernel from 5.12 on with RDMA, or a newer DOCA-OFED; xz or zstd on the host to look into modules",
        )
    left = [name for name in ("nvidia_peermem", "nv_peer_mem") if name in state.loaded and not contained]
    more = f"; {' and '.join(left)} is loaded, too, and not needed" if left else "; no module is needed for it"
    if any(kernel.options is not None and P2PDMA not in kernel.options for kernel in state.targets()):
        more += f"; {P2PDMA} is not set, which NVIDIA's prerequisites do not ask for"
    return ok(f"{decision.reason}{more}", expected)


@compared(
    "gpudirect_rdma.alone",
    *PROBES,
    system.CONTAINER,
    fields=("method",),
    evidence="lsmod | grep peer",
)
def alone(ctx: Ctx) -> Group | Outcome:
    """There are never two peer modules at once."""
    decision = decided(ctx)
    if not decision.method:
        return without(decision)
    state = ctx.facts.get(GPUDIRECT)
    other = {"nvidia_peermem": "nv_peer_mem", "nv_peer_mem": "nvidia_peermem"}.get(decision.method, "")
    loaded = (
        []
        if ctx.facts.get(system.CONTAINER)
        else [name for name in ("nvidia_peermem", "nv_peer_mem") if name in state.loaded]
    )
    expected = f"{decision.method}, and no other"
    gone = other or "nv_peer_mem"
    return Group(
        (KernelModule(name=gone, loaded=False),),
        modules=Modules(loaded=loaded if len(loaded) > 1 or other in loaded else ()),
        expected=expected,
        message=f"{' and '.join(loaded)} loaded: they register the same client",
        fix=f"rmmod {gone}, and remove what loads it at boot",
    )


@check(
    "gpudirect_rdma.topology_check",
    *(nvidia.PARAMETERS, nvidia.DRIVER, modules.MODPROBE, *platforms.PROBES),
    fields=("topology_check",),
    evidence="grep Grdma /proc/driver/nvidia/params; grep -r Grdma /etc/modprobe.d",
)
def topology_check(ctx: Ctx) -> Outcome:
    """The driver's check of the PCI topology is set as the spec asks, in modprobe's configuration and in the loaded
    module, whose driver version supports it on this platform. ACS and an IOMMU in the path are reported on bare metal,
    unless `pcie` sets them."""
    target = str(OVERRIDES[ctx.fragment.topology_check])
    configured = {
        values[OVERRIDE]
        for name, values in ctx.facts.get(modules.MODPROBE).options.items()
        if name in {modules.underscored(module) for module in catalogue.DRIVER_MODULES} and OVERRIDE in values
    } or {"0"}
    expected = f"{OVERRIDE}={target}"
    if configured != {target}:
        listed, look = ", ".join(sorted(configured)), f"grep -r {OVERRIDE} /etc/modprobe.d"
        if ctx.fragment.topology_check == "driver":
            return fail(
                expected, f"modprobe says {listed}", f"{look}: take it out of that file, or topology_check: allow, deny"
            )
        parameter = Setting(kind=OVERRIDE, value=target, words="modprobe says {before}", moment="next-boot")
        way = f"{APPLY}; another file may say otherwise: {look}"
        return find_fault(parameter, {("", ""): listed}, expected, fix=way) or ok(expected)
    if ctx.facts.get(system.CONTAINER) or not ctx.facts.get(nvidia.DRIVER).version:
        return ok(f"{expected}, for when the driver is loaded", expected)
    running = ctx.facts.get(nvidia.PARAMETERS).get(OVERRIDE)
    if running is None and target != "0":
        return fail(
            expected,
            "the loaded driver has no such parameter",
            f"a driver from {catalogue.find_first_branch(OVERRIDE)} on",
        )
    if running is not None and running != target:
        reason = f"the loaded driver has {OVERRIDE}={running}, {target} is wanted"
        return fail(expected, f"loaded with {running}", "reload the driver, or reboot", reboot=reason)
    platform, version = platforms.find_platform(ctx.host), ctx.facts.get(nvidia.DRIVER).version
    if platform and platform.required and (old := platforms.find_old_driver(platform, version)):
        fix = f"a driver from {platform.first_driver} on and before {platform.gone_branch}; gpuprov check"
        return fail(f"a driver with which {platform.key} works", f"{version} is loaded: {old}", fix)
    return ok(f"{expected}{platforms.describe_path(ctx)}", expected)


CHECKS = (dmabuf, alone, topology_check)
PREFLIGHT = (method,)
