"""Checks of IOMMU, ACS, registers and interrupts, now and after a reboot."""

from collections.abc import Iterable

import msgspec

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared, list_changes
from gpuprov.capabilities.pcie.fragment import REASON, Ctx, explain_policy, guest, model
from gpuprov.catalog import pcie as catalogue
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.host import system, virtualization
from gpuprov.facts.probes.host.pcie import PCIE
from gpuprov.facts.probes.host.pcie import Pcie as State
from gpuprov.facts.probes.kernel import boot
from gpuprov.host_code.at_boot.pcie import Difference, Function, list_differences
from gpuprov.host_code.lasting import BOOT
from gpuprov.resources import Setting

LSPCI = "lspci -vvv | grep -E '^[0-9a-f]"
RESET = f"systemctl restart {catalogue.UNIT} ({APPLY} does); a reset of the function undoes it"
ROOT = "run as root: only root reads configuration space beyond 64 bytes; as root: it fell off the bus, reboot"
HIDDEN = "take the field out of pcie: what runs the virtual machine hides the capability, or has to set it"


def hcas(ctx: Ctx) -> tuple[Function, ...]:
    """Return the functions of RDMA devices that are not NVLink bridges."""
    known = {device.address for device in rdma.list_hcas(ctx.facts.get(rdma.DEVICES))}
    return tuple(function for function in ctx.facts.get(PCIE).of("hca") if function.address in known)


def unreadable(functions: Iterable[Function]) -> list[str]:
    return [function.address for function in functions if not function.readable]


def conventional(functions: Iterable[Function]) -> list[str]:
    """Return the addresses of functions without the PCI Express capability, which contains DevCtl."""
    return [function.address for function in functions if function.control is None]


def differing(functions: Iterable[Function], **expected: str) -> list[Difference]:
    """Return what the boot unit's program would set."""
    return list(list_differences(tuple(functions), expected))


def register(functions: Iterable[Function], kind: str, value: str, words: str, **expected: str) -> Group:
    """Return a register of these functions, compared as the boot unit's program compares it."""
    each = list(functions)
    wrong = {row.address: row.actual for row in differing(each, **expected)}
    return Group(
        tuple(Setting(kind=kind, device=function.address, value=value, words=words) for function in each),
        {(function.address, ""): wrong.get(function.address, value) for function in each},
        fix=RESET,
    )


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
    parameters = catalogue.build_parameters(mode, ctx.fragment.cpu, model(ctx.host))
    running = ctx.facts.get(boot.COMMAND_LINE)
    lacking = [f"{key}={running.get(key, 'missing')}" for key, value in parameters.items() if running.get(key) != value]
    listed = " ".join(f"{key}={value}" for key, value in parameters.items())
    if lacking:
        reason = f"the kernel should be started with {listed}"
        return fail(f"IOMMU {mode}: {listed}", " ".join(lacking), f"{APPLY}, then a reboot", reboot=reason)
    functions = (*state.of("gpu"), *hcas(ctx))
    grouped = [function.address for function in functions if function.group]
    if mode == "disabled":
        fix = "another parameter may switch it on: cat /proc/cmdline"
        return fail("no IOMMU groups", f"in IOMMU groups: {' '.join(grouped)}", fix) if grouped else ok("no IOMMU")
    if functions and not grouped:
        if unseen := virtualization.hidden(ctx.facts.get(virtualization.MACHINE).kind, "iommu"):
            return skip(unseen)
        return fail(f"IOMMU {mode}", "no IOMMU groups", "switch it on in the firmware: VT-d, AMD-Vi or SMMU")
    domains = catalogue.DOMAINS[mode]
    wrong = [
        f"{function.address} is {function.domain}"
        for function in functions
        if function.domain and function.domain not in domains
    ]
    if wrong:
        return fail(
            f"type {' or '.join(domains)}",
            "; ".join(wrong),
            "dmesg | grep -i iommu; an untrusted device is never let through",
        )
    silent = any(function.group and not function.domain for function in functions)
    return ok(
        f"{listed}{'; this kernel does not report group types' if silent else ', ' + counted(len(grouped), 'function')}"
    )


@compared(
    "pcie.acs",
    *(PCIE, virtualization.MACHINE, system.CONTAINER),
    fields=("acs",),
    evidence=f"{LSPCI}|ACSCtl'; rdma_topo check",
    until=BOOT,
)
def acs(ctx: Ctx) -> Group | Outcome:
    """ACSCtl of GPUs, HCAs and all bridges above them is zero; with rdma_topo, what rdma_topo computes."""
    setting, state = ctx.fragment.acs, ctx.facts.get(PCIE)
    if setting == "keep":
        return not_asked()
    if machine := guest(ctx):
        return fail("bare metal", f"a virtual machine ({machine}): ACS is its host's", "pcie: {acs: keep}")
    if setting == "rdma_topo":
        return _judge_computed(state)
    path = state.path()
    if not path:
        return fail("GPUs or HCAs", "none on the PCI bus", "lspci -nn")
    if hidden := unreadable(path):
        return fail("ACSCtl of each", f"not readable: {' '.join(hidden)}", ROOT)
    having = [function for function in path if function.acs is not None]
    group = register(having, "ACSCtl", "0000", "{devices} {before}", acs="disabled")
    words = [
        msgspec.structs.replace(
            setting, words=f"{{devices}} {catalogue.format_acs(int(group.values[setting.device, ''], 16))}"
        )
        for setting in group.resources
        if isinstance(setting, Setting)
    ]
    return msgspec.structs.replace(
        group,
        resources=tuple(words),
        expected="ACS off above GPUs and HCAs",
        right=f"off in {len(having)} of {counted(len(path), 'function')}; the others have no ACS",
    )


def _judge_computed(state: State) -> Outcome:
    expected = "ACS as rdma_topo computes it"
    if not state.topo:
        return fail(expected, "no rdma_topo", "rdma-core 61 or later")
    if state.topo_status:
        message = "; ".join(state.topo_wrong) or f"rdma_topo check ends with {state.topo_status}"
        if state.topo_started:
            fix = "dmesg | grep -i acs: a kernel that does not know pci=config_acs needs a newer one; or acs: keep"
            return fail(expected, f"{message}, with its masks on the command line", fix)
        reason = REASON if state.topo_grub == "same" else ""
        computed = Setting(kind="ACS", value=expected, shown="as rdma_topo computes it", missing=message)
        changes = list_changes(filter(None, [computed.compare({})]))
        fix = f"{APPLY}, then a reboot; rdma_topo check"
        return fail(expected, message, fix, changes=changes, reboot=reason)
    return ok("rdma_topo check: no defect")


@compared(
    "pcie.max_read_request",
    *(PCIE, rdma.DEVICES),
    fields=("max_read_request", "gpu_max_read_request"),
    evidence=f"{LSPCI}|MaxReadReq'",
    until=BOOT,
)
def max_read_request(ctx: Ctx) -> Group | Outcome:
    """The maximum read request of each HCA, and of each GPU, has the wanted value."""
    sets = [
        (ctx.fragment.max_read_request, hcas, "HCA", "max_read_request"),
        (ctx.fragment.gpu_max_read_request, _list_gpus, "GPU", "gpu_max_read_request"),
    ]
    groups, expected = list[Group](), []
    for size, find, what, setting in sets:
        if not size:
            continue
        functions = find(ctx)
        if problem := _judge_control(functions, f"{size} bytes", f"no {what}", "ls /sys/class/infiniband; lspci -nn"):
            return problem
        expected.append(f"{size} bytes of {counted(len(functions), what)}")
        groups.append(register(functions, "MaxReadReq", str(size), "{devices} has {before}", **{setting: str(size)}))
    if not groups:
        return not_asked()
    return Group(
        tuple(resource for group in groups for resource in group.resources),
        {place: value for group in groups for place, value in group.values.items()},
        expected=", ".join(expected),
        fix=RESET,
        present=tuple(function.address for function in ctx.facts.get(PCIE).path()),
    )


def _list_gpus(ctx: Ctx) -> tuple[Function, ...]:
    return tuple(ctx.facts.get(PCIE).of("gpu"))


def _judge_control(functions: tuple[Function, ...], expected: str, none: str, fix: str) -> Outcome | None:
    """Return the outcome where DevCtl of these functions cannot be compared."""
    if not functions:
        return fail(expected, none, fix)
    if hidden := unreadable(functions):
        return fail(expected, f"not readable: {' '.join(hidden)}", ROOT)
    if without := conventional(functions):
        return fail(expected, f"no PCI Express capability: {' '.join(without)}", HIDDEN)
    return None


@compared(
    "pcie.relaxed_ordering", PCIE, rdma.DEVICES, fields=("relaxed_ordering",), evidence=f"{LSPCI}|RlxdOrd'", until=BOOT
)
def relaxed_ordering(ctx: Ctx) -> Group | Outcome:
    """Relaxed ordering is enabled, or disabled, in DevCtl of each GPU and HCA."""
    setting = ctx.fragment.relaxed_ordering
    if setting == "keep":
        return not_asked()
    functions, expected = (*_list_gpus(ctx), *hcas(ctx)), f"relaxed ordering {setting}"
    if problem := _judge_control(functions, expected, "no GPU and no HCA", "lspci -nn"):
        return problem
    group = register(functions, "relaxed ordering", setting, "{before}: {devices}", relaxed_ordering=setting)
    right = f"{setting} in {counted(len(functions), 'function')}"
    return msgspec.structs.replace(group, expected=expected, right=right)


@compared(
    "pcie.affinity",
    *(PCIE, rdma.DEVICES, system.CONTAINER),
    fields=("affinity",),
    evidence="for i in /sys/bus/pci/devices/*/infiniband/../msi_irqs/*; do cat "
    "/proc/irq/${i##*/}/smp_affinity_list; done",
    until=BOOT,
)
def affinity(ctx: Ctx) -> Group | Outcome:
    """Interrupts of each HCA may be served only by CPUs of its own NUMA node, and irqbalance leaves them there."""
    state = ctx.facts.get(PCIE)
    if ctx.fragment.affinity == "keep":
        return not_asked()
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(f"{kind} container: /proc/irq is the machine's")
    functions, expected = hcas(ctx), "interrupts on local CPUs"
    if not functions:
        return fail(expected, "no HCA", "ls /sys/class/infiniband")
    group = _group_interrupts(functions)
    if group.compare():
        return group
    if state.balancer and (problem := explain_policy(state.irqbalance, needed=True)):
        fix = f"{APPLY}; systemctl restart {catalogue.BALANCER}"
        return fail(f"irqbalance with {catalogue.POLICY}", problem, fix)
    if not sum(len(function.interrupts) for function in functions):
        return fail(expected, "none", "the driver has none yet: bring the ports up, and verify again")
    return group


def _group_interrupts(functions: tuple[Function, ...]) -> Group:
    astray: dict[str, list[str]] = {}
    for row in differing(functions, affinity="local"):
        astray.setdefault(row.address, []).append(row.setting.removeprefix("irq "))
    resources = []
    for function in functions:
        numbers = astray.get(function.address, [])
        more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
        words = f"{{devices}} (node {function.node}): interrupts {' '.join(numbers[:8])}{more} may be elsewhere"
        resources.append(
            Setting(kind="smp_affinity_list", device=function.address, value="its own node", before="", words=words)
        )
    count = sum(len(function.interrupts) for function in functions)
    places = {(hca.address, ""): "elsewhere" if hca.address in astray else "its own node" for hca in functions}
    return Group(
        tuple(resources),
        places,
        expected="interrupts on local CPUs",
        right=f"{counted(count, 'interrupt')} of {counted(len(functions), 'HCA')}",
        fix=f"systemctl restart {catalogue.UNIT}; interrupts that the kernel manages itself cannot be moved",
    )


@compared("pcie.boot", PCIE, fields=("acs",), moment="next-boot", evidence=f"rdma_topo check; cat {catalogue.GRUB}")
def masks_at_boot(ctx: Ctx) -> Group | Outcome:
    """GRUB has the masks of ACS that rdma_topo computes."""
    if ctx.fragment.acs != "rdma_topo":
        return not_asked()
    masks = Setting(
        kind="masks",
        value="same",
        words=f"{catalogue.GRUB}: {{before}}",
        missing="rdma_topo does not tell",
        moment="next-boot",
        file=catalogue.GRUB,
        shown="the masks of rdma_topo",
    )
    message = ctx.facts.get(PCIE).topo_grub
    return Group(
        (masks,),
        {("", ""): message} if message else {},
        expected="the masks of rdma_topo with GRUB",
        right=f"the masks of rdma_topo in {catalogue.GRUB}",
    )


CHECKS = (iommu, acs, max_read_request, relaxed_ordering, affinity, masks_at_boot)
