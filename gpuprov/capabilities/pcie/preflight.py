"""Check that the host supports the requested PCIe settings."""

import re
from collections.abc import Iterator

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.pcie.fragment import Ctx, guest, lines, model
from gpuprov.catalog import pcie as catalogue
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.host import system, virtualization
from gpuprov.facts.probes.host.family import NAMES, family
from gpuprov.facts.probes.host.pci import is_lent
from gpuprov.facts.probes.host.pcie import PCIE
from gpuprov.facts.probes.host.pcie import Pcie as State

KEEP = "pcie: {acs: keep}"
# The place of the command line on hosts whose GRUB has no drop-ins.
TO = {"redhat": "grubby", "suse": "/etc/default/grub"}
# Vendors as /proc/cpuinfo names them, with the IOMMU of their processors.
VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "amd", "arm": "arm"}


@check(
    "pcie.hardware",
    *(PCIE, rdma.DEVICES, virtualization.MACHINE, system.CONTAINER, system.OS_RELEASE),
    fields=("iommu", "cpu", "acs", "max_read_request", "relaxed_ordering", "affinity"),
    moment="preflight",
    evidence="lspci -nn; systemd-detect-virt --vm; cat /sys/kernel/security/lockdown",
)
def hardware(ctx: Ctx) -> Outcome:
    """The spec asks for nothing that this machine does not support, or that would harm it."""
    for expected, problem, fix in (
        *_refuse_acs(ctx),
        *_refuse_registers(ctx),
        *_refuse_devices(ctx),
        *_refuse_processor(ctx),
    ):
        return fail(expected, problem, fix)
    setting_lines = lines(ctx.fragment)
    return ok("; ".join(setting_lines)) if setting_lines else not_asked()


Refusal = Iterator[tuple[str, str, str]]


def _refuse_acs(ctx: Ctx) -> Refusal:
    setting, state = ctx.fragment.acs, ctx.facts.get(PCIE)
    if setting == "keep":
        return
    if kind := guest(ctx):
        yield "bare metal", f"a virtual machine ({kind}): ACS is its host's, and needed there", KEEP
    if setting == "disabled":
        yield from _refuse_zeros(state)
        return
    kin = family(ctx.facts.get(system.OS_RELEASE))
    if not state.topo:
        yield "rdma_topo", "no rdma_topo", f"rdma-core 61 or later; or {KEEP}"
    elif not state.topo_grub:
        message = "; ".join(state.topo_wrong) or "it does not say which masks"
        yield "a topology that rdma_topo knows", message, KEEP
    elif kin in TO:
        fix = f"rdma_topo write-grub-acs --dry-run, and give to {TO[kin]} what it prints; {KEEP}"
        yield "GRUB with drop-ins, which rdma_topo writes", f"a host of the {NAMES[kin]} family", fix


def _refuse_zeros(state: State) -> Refusal:
    computed = dict.fromkeys(name for other in state.others if (name := catalogue.find_acs_kind(other)))
    if computed:
        fix = f"pcie: {{acs: rdma_topo}}, with rdma-core 61 or later; or {KEEP}"
        yield "ACS that may be off everywhere", f"{', '.join(computed)}: each port needs a mask of its own", fix
    lent = [function for function in state.path() if is_lent(function.driver)]
    if lent:
        drivers = ", ".join(dict.fromkeys(function.driver for function in lent))
        addresses = " ".join(function.address for function in lent)
        message = f"{addresses} belong to {drivers}: without ACS, virtual machines are not kept apart"
        yield "no function for virtual machines", message, KEEP


def _refuse_registers(ctx: Ctx) -> Refusal:
    state, block = ctx.facts.get(PCIE), ctx.fragment
    written = any((block.acs == "disabled", block.max_read_request, block.gpu_max_read_request))
    if (written or block.relaxed_ordering != "keep") and state.lockdown not in ("", "none"):
        fix = "set it in the firmware, switch Secure Boot off, or take it out of the spec"
        yield "a kernel that lets root write configuration space", f"lockdown {state.lockdown}, by Secure Boot", fix
    broken = [
        f"{bridge.address} ({name})"
        for bridge in state.of("bridge")
        if (name := catalogue.find_excluded_processor(bridge.identifier))
    ]
    if block.relaxed_ordering == "enabled" and broken:
        message = f"an erratum, for which the kernel switches it off: {' '.join(broken)}"
        yield "root ports that take relaxed ordering", message, "pcie: {relaxed_ordering: keep}"


def _refuse_devices(ctx: Ctx) -> Refusal:
    state, block = ctx.facts.get(PCIE), ctx.fragment
    if (block.max_read_request or block.affinity == "local") and "rdma" not in ctx.host.capabilities:
        known = {device.address for device in rdma.list_hcas(ctx.facts.get(rdma.DEVICES))}
        if not any(hca.address in known for hca in state.of("hca")):
            yield "an HCA", "no HCA in /sys/class/infiniband", "add rdma to the spec, or take out what is set of HCAs"
    own = re.search(r"(?:--policyscript[= ]|-l )(\S+)", state.irqbalance)
    if block.affinity == "local" and own and own[1] != catalogue.POLICY:
        fix = "have it print ban=true for HCAs, with affinity: keep; or remove it"
        yield "irqbalance without a policy script of its own", f"irqbalance runs with {own[1]}", fix


def _refuse_processor(ctx: Ctx) -> Refusal:
    vendor = VENDORS.get(ctx.facts.get(PCIE).vendor, "")
    if ctx.fragment.iommu == "keep" or not vendor:
        return
    meant = catalogue.list_processors(ctx.fragment.cpu, model(ctx.host))
    if vendor not in meant:
        yield f"a processor of {' or '.join(meant)}", f"one of {vendor}", f"pcie: {{cpu: {vendor}}}"


CHECKS = (hardware,)
