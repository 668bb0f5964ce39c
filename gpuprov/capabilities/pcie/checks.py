"""Checks of IOMMU, ACS, registers and interrupts, now and after a reboot."""

from __future__ import annotations

from collections.abc import Iterable

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.pcie.fragment import REASON, Ctx, guest, model
from gpuprov.catalog import pcie as catalogue
from gpuprov.onhost.at_boot.pcie import Difference, Function, list_differences
from gpuprov.probe import rdma
from gpuprov.probe.host import system, virtualization
from gpuprov.probe.host.pcie import PCIE
from gpuprov.probe.host.pcie import Pcie as State
from gpuprov.probe.kernel import boot
from gpuprov.shown import counted

RESET = f"systemctl restart {catalogue.UNIT} ({APPLY} does); a reset of the function undoes it"
ROOT = "run as root: only root reads configuration space beyond 64 bytes; as root: it fell off the bus (dmesg, lspci), reboot"
HIDDEN = "take the field out of pcie: what runs the virtual machine hides the capability, or has to set it"


def hcas(ctx: Ctx) -> tuple[Function, ...]:
    """Return the functions of RDMA devices that are not NVLink bridges."""
    known = {device.address for device in rdma.list_hcas(ctx.facts.get(rdma.DEVICES))}
    return tuple(one for one in ctx.facts.get(PCIE).of("hca") if one.address in known)


def unreadable(functions: Iterable[Function]) -> list[str]:
    return [one.address for one in functions if not one.readable]


def conventional(functions: Iterable[Function]) -> list[str]:
    """Return the addresses of functions without the PCI Express capability, which contains DevCtl."""
    return [one.address for one in functions if one.control is None]


def differing(functions: Iterable[Function], **wanted: str) -> list[Difference]:
    """Return what the boot unit's program would set."""
    return list(list_differences(tuple(functions), wanted))


def changes_of(wrong: Iterable[Difference], register: str) -> list[Change]:
    return [
        Change(kind="setting", name=f"{one.address} {register}", before=one.found, after=one.value) for one in wrong
    ]


@check(
    "pcie.iommu",
    *(PCIE, rdma.DEVICES, boot.COMMAND_LINE, virtualization.MACHINE, system.CONTAINER),
    fields=("iommu", "cpu"),
    evidence="cat /proc/cmdline; head -v /sys/bus/pci/devices/*/iommu_group/type",
)
def iommu(ctx: Ctx) -> Outcome:
    """GPUs and HCAs are in IOMMU groups of the wanted type; kernel.boot_entries checks this for the next boot."""
    mode, state = ctx.fragment.iommu, ctx.facts.get(PCIE)
    if mode == "keep":
        return not_asked()
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(f"{kind} container: the IOMMU is the machine's, and so are its parameters")
    wanted = catalogue.build_parameters(mode, ctx.fragment.cpu, model(ctx.host))
    running = ctx.facts.get(boot.COMMAND_LINE)
    lacking = [f"{key}={running.get(key, 'missing')}" for key, value in wanted.items() if running.get(key) != value]
    told = " ".join(f"{key}={value}" for key, value in wanted.items())
    if lacking:
        reason = f"the kernel should be started with {told}"
        return fail(f"IOMMU {mode}: {told}", " ".join(lacking), f"{APPLY}, then a reboot", reboot=reason)
    functions = (*state.of("gpu"), *hcas(ctx))
    grouped = [one.address for one in functions if one.group]
    if mode == "disabled":
        hint = "another parameter may switch it on: cat /proc/cmdline"
        return fail("no IOMMU groups", f"in IOMMU groups: {' '.join(grouped)}", hint) if grouped else ok("no IOMMU")
    if functions and not grouped:
        if unseen := virtualization.hidden(ctx.facts.get(virtualization.MACHINE).kind, "iommu"):
            return skip(unseen)
        return fail(f"IOMMU {mode}", "no IOMMU groups", "switch it on in the firmware: VT-d, AMD-Vi or SMMU")
    domains = catalogue.DOMAINS[mode]
    wrong = [f"{one.address} is {one.domain}" for one in functions if one.domain and one.domain not in domains]
    if wrong:
        return fail(
            f"type {' or '.join(domains)}",
            "; ".join(wrong),
            "dmesg | grep -i iommu; an untrusted device is never let through",
        )
    silent = any(one.group and not one.domain for one in functions)
    return ok(
        f"{told}{'; this kernel does not tell the types of groups' if silent else ', ' + counted(len(grouped), 'function')}"
    )


@check(
    "pcie.acs",
    *(PCIE, virtualization.MACHINE, system.CONTAINER),
    fields=("acs",),
    evidence="lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'; rdma_topo check",
)
def acs(ctx: Ctx) -> Outcome:
    """ACSCtl of GPUs, HCAs and all bridges above them is zero; with rdma_topo, what rdma_topo computes."""
    asked, state = ctx.fragment.acs, ctx.facts.get(PCIE)
    if asked == "keep":
        return not_asked()
    if machine := guest(ctx):
        return fail("bare metal", f"a virtual machine ({machine}): ACS is its host's", "pcie: {acs: keep}")
    if asked == "rdma_topo":
        return _computed(state)
    path = state.path()
    if not path:
        return fail("GPUs or HCAs", "none on the PCI bus", "lspci -nn")
    if hidden := unreadable(path):
        return fail("ACSCtl of each", f"not readable: {' '.join(hidden)}", ROOT)
    if wrong := differing(path, acs="disabled"):
        told = "; ".join(f"{one.address} {catalogue.format_acs(int(one.found, 16))}" for one in wrong)
        return fail("ACS off above GPUs and HCAs", told, RESET, changes=changes_of(wrong, "ACSCtl"))
    having = sum(one.acs is not None for one in path)
    return ok(f"off in {having} of {counted(len(path), 'function')}; the others have no ACS")


def _computed(state: State) -> Outcome:
    expected = "ACS as rdma_topo computes it"
    if not state.topo:
        return fail(expected, "no rdma_topo", "a rdma-core of version 61 or later")
    if state.topo_status:
        change = Change(kind="file", name=catalogue.GRUB, before=state.topo_grub, after="the masks of rdma_topo")
        told = "; ".join(state.topo_wrong) or f"rdma_topo check ends with {state.topo_status}"
        if state.topo_started:
            hint = "dmesg | grep -i acs: a kernel that does not know pci=config_acs needs a newer one; or acs: keep"
            return fail(expected, f"{told}, with its masks on the command line", hint)
        written = state.topo_grub == "same"
        reason = REASON if written else ""
        return fail(
            expected,
            told,
            f"{APPLY}, then a reboot; rdma_topo check",
            changes=[] if written else [change],
            reboot=reason,
        )
    return ok("rdma_topo check: all is as it should be")


@check(
    "pcie.max_read_request",
    *(PCIE, rdma.DEVICES),
    fields=("max_read_request", "gpu_max_read_request"),
    evidence="lspci -vvv | grep -E '^[0-9a-f]|MaxReadReq'",
)
def max_read_request(ctx: Ctx) -> Outcome:
    """The maximum read request of each HCA, and of each GPU, has the wanted value."""
    state = ctx.facts.get(PCIE)
    sets = [
        (ctx.fragment.max_read_request, hcas(ctx), "HCA", "max_read_request"),
        (ctx.fragment.gpu_max_read_request, state.of("gpu"), "GPU", "gpu_max_read_request"),
    ]
    wrong, told = [], []
    for size, functions, what, setting in sets:
        if not size:
            continue
        if not functions:
            return fail(f"{size} bytes", f"no {what}", "ls /sys/class/infiniband; lspci -nn")
        if hidden := unreadable(functions):
            return fail(f"{size} bytes", f"not readable: {' '.join(hidden)}", ROOT)
        if without := conventional(functions):
            return fail(f"{size} bytes", f"no PCI Express capability: {' '.join(without)}", HIDDEN)
        told.append(f"{size} bytes of {counted(len(functions), what)}")
        wrong += differing(functions, **{setting: str(size)})
    if wrong:
        found = "; ".join(f"{one.address} has {one.found}" for one in wrong)
        return fail(", ".join(told), found, RESET, changes=changes_of(wrong, "MaxReadReq"))
    return ok(", ".join(told)) if told else not_asked()


@check(
    "pcie.relaxed_ordering",
    *(PCIE, rdma.DEVICES),
    fields=("relaxed_ordering",),
    evidence="lspci -vvv | grep -E '^[0-9a-f]|RlxdOrd'",
)
def relaxed_ordering(ctx: Ctx) -> Outcome:
    """Relaxed ordering is enabled, or disabled, in DevCtl of each GPU and HCA."""
    asked = ctx.fragment.relaxed_ordering
    if asked == "keep":
        return not_asked()
    functions = (*ctx.facts.get(PCIE).of("gpu"), *hcas(ctx))
    if not functions:
        return fail(f"relaxed ordering {asked}", "no GPU and no HCA", "lspci -nn")
    if hidden := unreadable(functions):
        return fail(f"relaxed ordering {asked}", f"not readable: {' '.join(hidden)}", ROOT)
    if without := conventional(functions):
        return fail(f"relaxed ordering {asked}", f"no PCI Express capability: {' '.join(without)}", HIDDEN)
    if wrong := differing(functions, relaxed_ordering=asked):
        told = f"{wrong[0].found}: {' '.join(one.address for one in wrong)}"
        return fail(f"relaxed ordering {asked}", told, RESET, changes=changes_of(wrong, "relaxed ordering"))
    return ok(f"{asked} in {counted(len(functions), 'function')}")


@check(
    "pcie.affinity",
    *(PCIE, rdma.DEVICES, system.CONTAINER),
    fields=("affinity",),
    evidence="for i in /sys/bus/pci/devices/*/infiniband/../msi_irqs/*; do cat /proc/irq/${i##*/}/smp_affinity_list; done",
)
def affinity(ctx: Ctx) -> Outcome:
    """Interrupts of each HCA may be served only by CPUs of its own NUMA node, and irqbalance leaves them there."""
    state = ctx.facts.get(PCIE)
    if ctx.fragment.affinity == "keep":
        return not_asked()
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(f"{kind} container: /proc/irq is the machine's")
    functions = hcas(ctx)
    if not functions:
        return fail("interrupts on local CPUs", "no HCA", "ls /sys/class/infiniband")
    told, changes = [], []
    wrong = differing(functions, affinity="local")
    for one in functions:
        if astray := [row.setting.removeprefix("irq ") for row in wrong if row.address == one.address]:
            more = f" and {len(astray) - 8} more" if len(astray) > 8 else ""
            told.append(f"{one.address} (node {one.node}): interrupts {' '.join(astray[:8])}{more} may be elsewhere")
            changes.append(Change(kind="setting", name=f"{one.address} smp_affinity_list", after="its own node"))
    if told:
        hint = f"systemctl restart {catalogue.UNIT}; interrupts that the kernel manages itself cannot be moved"
        return fail("interrupts on local CPUs", "; ".join(told), hint, changes=changes)
    if state.balancer and catalogue.POLICY not in state.irqbalance:
        change = Change(kind="file", name=catalogue.DROP_IN, after=f"--policyscript={catalogue.POLICY}")
        told_so = f"irqbalance runs without it: {state.irqbalance.strip()}"
        return fail(
            f"irqbalance with {catalogue.POLICY}", told_so, f"{APPLY}; systemctl restart irqbalance", changes=[change]
        )
    count = sum(len(one.interrupts) for one in functions)
    if not count:
        return fail("interrupts of HCAs", "none", "the driver has none yet: bring the ports up, and verify again")
    return ok(f"{counted(count, 'interrupt')} of {counted(len(functions), 'HCA')}")


@check("pcie.boot", PCIE, fields=("acs",), moment="next-boot", evidence=f"rdma_topo check; cat {catalogue.GRUB}")
def masks_at_boot(ctx: Ctx) -> Outcome:
    """GRUB has the masks of ACS that rdma_topo computes."""
    state = ctx.facts.get(PCIE)
    if ctx.fragment.acs != "rdma_topo":
        return not_asked()
    if state.topo_grub != "same":
        change = Change(kind="file", name=catalogue.GRUB, before=state.topo_grub, after="the masks of rdma_topo")
        told = f"{catalogue.GRUB}: {state.topo_grub or 'rdma_topo does not tell'}"
        return fail("the masks of rdma_topo with GRUB", told, APPLY, changes=[change])
    return ok(f"the masks of rdma_topo in {catalogue.GRUB}")


CHECKS = (iommu, acs, max_read_request, relaxed_ordering, affinity, masks_at_boot)
