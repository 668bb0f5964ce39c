"""Checks without a field in the spec: links and ports below what they should be, and dead daemons of the NVLink
fabric."""

from collections.abc import Iterable
from typing import Any

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.health.fragment import HERE, Ctx
from gpuprov.capabilities.health.reported import concern
from gpuprov.catalog.topology import always_has_nvlinks
from gpuprov.catalog.xids import find_worst
from gpuprov.facts.probes import recorded
from gpuprov.facts.probes.base import Facts, NotRecorded, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus.fabric import STATE
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.gpus.imex import IMEX
from gpuprov.facts.probes.gpus.nvlink import ALONE
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.systemd import SYSTEMD_UNITS
from gpuprov.facts.probes.host.virtualization import hidden
from gpuprov.facts.probes.rdma import list_hcas
from gpuprov.hardware.topology import defects, read
from gpuprov.hardware.topology import fabric as rules
from gpuprov.hardware.topology.defects import Defect
from gpuprov.hardware.topology.fabric import Fault
from gpuprov.hardware.topology.model import BUS, read_bus
from gpuprov.hardware.topology.model import PROBES as WIRING
from gpuprov.spec.model import HostSpec

PROBES = tuple(wiring_probe for wiring_probe in WIRING if wiring_probe.name != "nccl_topology")
LSPCI = "lspci -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'"


def _judge_wiring(results: Iterable[Defect | Fault], expected: str, passed: str) -> Outcome:
    """Return a failure if something is wrong, with the most severe action; else report what cannot be determined from
    here."""
    every = tuple(results)
    bad = [defect for defect in every if not defect.unproven]
    noted = "; ".join(defect.message for defect in every if defect.unproven)
    if not bad:
        return ok(f"{passed}; noted: {noted}" if noted else passed, expected)
    action = find_worst(tuple(defect.action for defect in bad))
    fixes = dict.fromkeys(defect.fix for defect in bad if defect.action == action)
    outcome = fail(expected, "; ".join(defect.message for defect in bad), "; ".join(fixes), action=action)
    return concern(outcome, (place for defect in bad for place in getattr(defect, "places", ())))


def _judge_record(results: Iterable[Defect | Fault], expected: str, lacking: NotRecorded) -> Outcome:
    """Return a failure if something in the record is wrong. Raises the error for what the record lacks if nothing
    is."""
    every = tuple(results)
    if all(defect.unproven for defect in every):
        raise lacking
    return _judge_wiring(every, expected, "")


def _find_block(ctx: Ctx, name: str) -> Any:
    return ctx.host.capabilities.get(name)


@check("health.pcie_links", *PROBES, GPU_HEALTH, evidence=LSPCI)
def pcie_links(ctx: Ctx) -> Outcome:
    """Each GPU, HCA and NVSwitch answers on PCIe, and each link to its CPU is as wide and as fast as both ends support,
    unless topology.pcie is any. Links that a virtual machine cannot see are reported; the speed of idle GPUs is not
    judged."""
    if getattr(_find_block(ctx, "topology"), "pcie", "full") == "any":
        return not_asked("topology.pcie is any")
    expected = "PCIe links at full width and speed"
    try:
        wiring = read(ctx.facts)
    except NotRecorded as lacking:
        shown, gone = ctx.facts.known(GPU_HEALTH), ctx.facts.known(recorded.GONE) or ()
        links = tuple(defects.find_narrow_recorded(ctx.facts.known(recorded.PCIE) or ()))
        named = {place for defect in links for place in defect.places}
        gpus = [gpu for gpu in (shown.gpus if shown else ()) if gpu.address not in named]
        return _judge_record((*defects.list_unanswering(gone), *links, *defects.narrow(gpus)), expected, lacking)
    ends = len(wiring.gpus) + len(wiring.hcas)
    if not ends:
        return not_asked("no NVIDIA GPU and no HCA on the PCI bus")
    return _judge_wiring(defects.find_narrow_links(wiring), expected, f"{ends} devices")


@check("health.nvlinks", *PROBES, nvidia.DRIVER, system.CONTAINER, evidence="nvidia-smi nvlink -s")
def nvlinks(ctx: Ctx) -> Outcome:
    """Each GPU has as many NVLinks up as its model has, or as others of its model on this host, unless topology.nvlinks
    is any."""
    if getattr(_find_block(ctx, "topology"), "nvlinks", "all") == "any":
        return not_asked("topology.nvlinks is any")
    expected = "all NVLinks of each GPU up"
    try:
        wiring = read(ctx.facts)
    except NotRecorded as lacking:
        return _judge_record(defects.find_uneven_nvlinks(ctx.facts.known(recorded.LINKS) or ()), expected, lacking)
    linked = [gpu for gpu in wiring.gpus if gpu.nvlink and gpu.nvlink.links]
    if wiring.nvlinks.complaint:
        bare = not any(always_has_nvlinks(gpu.entry) for gpu in wiring.gpus)
        if len(wiring.gpus) < 2 or bare or hidden(wiring.guest, "nvswitches"):
            return not_asked(wiring.nvlinks.complaint + f", {ALONE}" * (len(wiring.gpus) == 1))
        raise ProbeFailed(f"NVLinks are not known: {wiring.nvlinks.complaint}", "see health.gpus")
    missing = tuple(defects.find_missing_nvlinks(wiring))
    if not linked and not missing:
        return not_asked("no GPU has NVLinks")
    return _judge_wiring(missing, expected, f"{len(linked)} GPUs with NVLinks")


@check("health.port_state", *PROBES, evidence="rdma link; ibstat; cat /sys/class/infiniband/*/ports/*/{state,rate}")
def port_state(ctx: Ctx) -> Outcome:
    """No port of an RDMA device is down or slow while similar ports on this host are up, or faster. With rdma in the
    spec, every port of its devices is up, at the rate that it asks for."""
    expected = "each port ACTIVE, as fast as its like"
    try:
        wiring = read(ctx.facts)
    except NotRecorded as lacking:
        shown = ctx.facts.known(recorded.PORTS) or ()
        return _judge_record(defects.list_bad_recorded_ports(shown, _find_block(ctx, "rdma")), expected, lacking)
    ports = sum(len(hca.ports) for hca in list_hcas(wiring.devices))
    if not ports:
        return not_asked("no RDMA device")
    return _judge_wiring(defects.list_bad_ports(wiring, _find_block(ctx, "rdma")), expected, f"{ports} ports")


@check(
    "health.fabric",
    *(*rules.PROBES, nvidia.DRIVER, system.CONTAINER),
    evidence="systemctl status nvidia-fabricmanager nvidia-imex; nvidia-smi -q | grep -A 14 -w Fabric",
)
def fabric(ctx: Ctx) -> Outcome:
    """If GPUs are on NVSwitches or in a rack, Fabric Manager or nvidia-imex is running, and no GPU is missing from the
    fabric or unhealthy in it. In a container: if the daemons are its own."""
    kind = ctx.facts.get(system.CONTAINER)
    if kind and not _has_daemons(ctx.facts):
        return not_asked(f"{kind} container: the daemons are its machine's")
    driven = ctx.facts.known(STATE) if kind else ctx.facts.get(nvidia.DRIVER).version
    if not driven:
        return not_asked("no NVIDIA driver answers: see health.gpus")
    expected, passed = "daemons and GPUs of the NVLink fabric well", "nothing is wrong"
    try:
        return _judge_wiring(rules.find_faults(ctx.facts), expected, passed)
    except NotRecorded as lacking:
        return _judge_record(rules.find_gpu_faults(ctx.facts), expected, lacking)


def _has_daemons(facts: Facts) -> bool:
    return facts.get(SYSTEMD_UNITS)[rules.UNIT].file == "enabled" or facts.get(IMEX).file == "enabled"


# The probe that `unasked` reads.
UNASKED = BUS


def unasked(spec: HostSpec, facts: Facts) -> list[str]:
    """Return defects of links and ports on a host whose spec has no block for them, by the rules of those blocks. Empty
    if the bus could not be read."""
    if HERE in spec.capabilities:
        return []
    try:
        wiring = read_bus(facts)
    except ProbeFailed:
        return []
    wrong = [] if "topology" in spec.capabilities else [*defects.find_narrow_links(wiring)]
    wrong += [] if "rdma" in spec.capabilities else defects.list_bad_ports(wiring)
    return [defect.message for defect in wrong if not defect.unproven]


CHECKS = (pcie_links, nvlinks, port_state, fabric)
# Checks whose results export shows beside a host's spec.
HARDWARE = tuple(own_check.id for own_check in CHECKS)
