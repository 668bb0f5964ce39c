"""Check that the host supports the requested PCIe settings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.pcie.fragment import Ctx, guest, lines, model
from gpuprov.catalog import pcie as catalogue
from gpuprov.probe import rdma
from gpuprov.probe.host import system, virtualization
from gpuprov.probe.host.family import NAMES, family
from gpuprov.probe.host.pci import is_lent
from gpuprov.probe.host.pcie import PCIE
from gpuprov.probe.host.pcie import Pcie as State

KEEP = "pcie: {acs: keep}"
TO = {"redhat": "grubby", "suse": "/etc/default/grub"}
"""The place of the command line on hosts whose GRUB has no drop-ins."""
VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd", "HygonGenuine": "amd", "arm": "arm"}
"""Vendors as /proc/cpuinfo names them, with the IOMMU of their processors."""


@check(
    "pcie.hardware",
    *(PCIE, rdma.DEVICES, virtualization.MACHINE, system.CONTAINER, system.OS_RELEASE),
    fields=("iommu", "cpu", "acs", "max_read_request", "relaxed_ordering", "affinity"),
    moment="preflight",
    evidence="lspci -nn; systemd-detect-virt --vm; cat /sys/kernel/security/lockdown",
)
def hardware(ctx: Ctx) -> Outcome:
    """The spec asks for nothing that this machine does not support, or that would harm it."""
    for expected, found, hint in (*_acs(ctx), *_registers(ctx), *_devices(ctx), *_processor(ctx)):
        return fail(expected, found, hint)
    asked = lines(ctx.fragment)
    return ok("; ".join(asked)) if asked else not_asked()


Refusal = Iterator[tuple[str, str, str]]


def _acs(ctx: Ctx) -> Refusal:
    asked, state = ctx.fragment.acs, ctx.facts.get(PCIE)
    if asked == "keep":
        return
    if kind := guest(ctx):
        yield "bare metal", f"a virtual machine ({kind}): ACS is its host's, and needed there", KEEP
    if asked == "disabled":
        yield from _zeros(state)
        return
    kin = family(ctx.facts.get(system.OS_RELEASE))
    if not state.topo:
        yield "rdma_topo", "no rdma_topo", f"a rdma-core of version 61 or later; or {KEEP}"
    elif not state.topo_grub:
        told = "; ".join(state.topo_wrong) or "it does not say which masks"
        yield "a topology that rdma_topo knows", told, KEEP
    elif kin in TO:
        hint = f"rdma_topo write-grub-acs --dry-run, and give to {TO[kin]} what it prints; {KEEP}"
        yield "GRUB with drop-ins, which rdma_topo writes", f"a host of the {NAMES[kin]} family", hint


def _zeros(state: State) -> Refusal:
    computed = dict.fromkeys(name for one in state.others if (name := catalogue.find_acs_kind(one)))
    if computed:
        hint = f"pcie: {{acs: rdma_topo}}, with rdma-core 61 or later; or {KEEP}"
        yield "ACS that may be off everywhere", f"{', '.join(computed)}: each port needs a mask of its own", hint
    lent = [one for one in state.path() if is_lent(one.driver)]
    if lent:
        drivers = ", ".join(dict.fromkeys(one.driver for one in lent))
        told = f"{' '.join(one.address for one in lent)} belong to {drivers}: without ACS, virtual machines are not kept apart"
        yield "no function for virtual machines", told, KEEP


def _registers(ctx: Ctx) -> Refusal:
    state, asked = ctx.facts.get(PCIE), ctx.fragment
    written = any((asked.acs == "disabled", asked.max_read_request, asked.gpu_max_read_request))
    if (written or asked.relaxed_ordering != "keep") and state.lockdown not in ("", "none"):
        hint = "set it in the firmware, switch Secure Boot off, or take it out of the spec"
        yield "a kernel that lets root write configuration space", f"lockdown {state.lockdown}, by Secure Boot", hint
    broken = [
        f"{one.address} ({name})"
        for one in state.of("bridge")
        if (name := catalogue.find_excluded_processor(one.identifier))
    ]
    if asked.relaxed_ordering == "enabled" and broken:
        told = f"an erratum, for which the kernel switches it off: {' '.join(broken)}"
        yield "root ports that take relaxed ordering", told, "pcie: {relaxed_ordering: keep}"


def _devices(ctx: Ctx) -> Refusal:
    state, asked = ctx.facts.get(PCIE), ctx.fragment
    if (asked.max_read_request or asked.affinity == "local") and "rdma" not in ctx.host.capabilities:
        known = {device.address for device in rdma.list_hcas(ctx.facts.get(rdma.DEVICES))}
        if not any(one.address in known for one in state.of("hca")):
            yield "an HCA", "no HCA in /sys/class/infiniband", "add rdma to the spec, or take out what is set of HCAs"
    own = re.search(r"(?:--policyscript[= ]|-l )(\S+)", state.irqbalance)
    if asked.affinity == "local" and own and own[1] != catalogue.POLICY:
        hint = "have it print ban=true for HCAs, with affinity: keep; or remove it"
        yield "irqbalance without a policy script of its own", f"irqbalance runs with {own[1]}", hint


def _processor(ctx: Ctx) -> Refusal:
    found = VENDORS.get(ctx.facts.get(PCIE).vendor, "")
    if ctx.fragment.iommu == "keep" or not found:
        return
    meant = catalogue.list_processors(ctx.fragment.cpu, model(ctx.host))
    if found not in meant:
        yield f"a processor of {' or '.join(meant)}", f"one of {found}", f"pcie: {{cpu: {found}}}"


CHECKS = (hardware,)
