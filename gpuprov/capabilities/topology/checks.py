"""Checks that GPUs, HCAs and NVLinks are connected as the spec asks."""

from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.driver import explain_absent_driver
from gpuprov.capabilities.topology.fragment import Topology, number
from gpuprov.catalog.topology import count_nvlinks as of_model
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes import rdma
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import nvlink, topology
from gpuprov.facts.probes.gpus.nvlink import ALONE
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.virtualization import MACHINE, hidden
from gpuprov.hardware.topology import DISTANCES, Wiring, defects, read
from gpuprov.hardware.topology.defects import name_function
from gpuprov.hardware.topology.judge import assign_hcas, is_across_sockets
from gpuprov.hardware.topology.links import find_lowered
from gpuprov.hardware.topology.model import Distance
from gpuprov.hardware.topology.rails import build_rails, find_spare

Ctx = Context[Topology]
PROBES = (topology.PCI, rdma.DEVICES, nvlink.NVLINKS, MACHINE)
SHOWN = "nvidia-smi topo -m; lspci -tv; ls -l /sys/class/infiniband"
SEE = "gpuprov topology HOST draws it"
NO_HCA = "no HCA on the PCI bus"
DRIVER = "rdma: in the spec brings its driver up; lspci -nn -d 15b3: shows what the bus has"


@check("topology.visible", topology.PCI, rdma.DEVICES, nvlink.NVLINKS, moment="preflight", evidence="lspci -tv")
def visible(ctx: Ctx) -> Outcome:
    """The host's PCI bus has an NVIDIA GPU, so that there is something to check."""
    wiring = read(ctx.facts)
    if not wiring.gpus:
        return fail("an NVIDIA GPU", "no NVIDIA GPU on the PCI bus", "topology: false, or lspci -nn -d 10de:")
    return ok(f"{counted(len(wiring.gpus), 'GPU')}, {counted(len(wiring.hcas), 'HCA')}")


@check("topology.gpu_hca", *PROBES, fields=("gpu_hca",), evidence=SHOWN)
def gpu_hca(ctx: Ctx) -> Outcome:
    """Each GPU's nearest HCA is no farther than the spec allows."""
    wiring, limit = read(ctx.facts), ctx.fragment.gpu_hca
    if limit == "any":
        return not_asked("gpu_hca: any")
    expected = f"an HCA within {limit} of each GPU"
    if wanting := _judge_lack(wiring, expected):
        return wanting
    distances, far = [], []
    best = assign_hcas(wiring)
    for gpu in wiring.gpus:
        distance, _ = wiring.near(gpu)
        distances.append(str(distance))
        if distance and DISTANCES.index(distance) > DISTANCES.index(limit):
            far.append(f"{gpu.name} {distance} to {best[gpu.index].name}")
    if far and (unseen := _explain_unseen(wiring)):
        return skip(f"{'; '.join(far)}; {unseen}", "give the guest the host's PCIe switches; else gpu_hca: any")
    if far:
        return fail(expected, "; ".join(far), f"compare the HCA's slot with the machine's manual; {SEE}")
    return ok(
        f"{counted(len(wiring.gpus), 'GPU')},"
        f" at most {max(distances, key=lambda distance: DISTANCES.index(_get_known_distance(distance)))}",
        expected,
    )


def _get_known_distance(text: str) -> Distance:
    return next(distance for distance in DISTANCES if distance == text)


def _explain_unseen(wiring: Wiring) -> str:
    """Return why the distance of an HCA from a GPU cannot be determined from here: a guest that sees no bridge above
    any of its GPUs."""
    return "" if any(gpu.function.bridges for gpu in wiring.gpus) else hidden(wiring.guest, "switches")


def _judge_lack(wiring: Wiring, expected: str) -> Outcome | None:
    """Return the outcome if there is no GPU, or no HCA."""
    if not wiring.gpus:
        return fail(expected, "no NVIDIA GPU on the PCI bus", "see topology.visible")
    if wiring.hcas:
        return None
    silent = (
        f"; without an RDMA device: {', '.join(device.address for device in wiring.silent)}" if wiring.silent else ""
    )
    soft = f"; {' '.join(wiring.unplaced)} is not a PCI function" if wiring.unplaced else ""
    return fail(expected, f"{NO_HCA}{silent}{soft}", DRIVER)


@check("topology.rails", *PROBES, fields=("rails",), evidence=SHOWN)
def rail(ctx: Ctx) -> Outcome:
    """Each GPU has an HCA of its own that is near, or all HCAs are shared by equally many GPUs."""
    wiring = read(ctx.facts)
    if ctx.fragment.rails == "any":
        return not_asked("rails: any")
    limit: Distance = "PXB" if ctx.fragment.gpu_hca == "any" else ctx.fragment.gpu_hca
    expected = f"an HCA within {limit} for each GPU, its own or evenly shared"
    if wanting := _judge_lack(wiring, expected):
        return wanting
    rails, best = build_rails(wiring, limit), assign_hcas(wiring)
    fix = f"compare the HCAs' slots with the machine's manual; {SEE}"
    problems = [f"{gpu.name} has none: {best[gpu.index].name} is {wiring.near(gpu)[0]}" for gpu in rails.without]
    problems += [f"{hca.name} is shared by {' and '.join(gpu.name for gpu in gpus)}" for hca, gpus in rails.crowded]
    left = ", ".join(name_function(wiring, hca.function.address) for hca in find_spare(wiring, rails))
    if problems:
        problems += [f"paired with no GPU: {left}"] * bool(left and rails.pairs)
        if unseen := _explain_unseen(wiring):
            return skip(f"{'; '.join(problems)}; {unseen}", "give the guest the host's PCIe switches; else rails: any")
        if not rails.pairs:
            fix = f"gpu_hca: NODE, for a machine whose HCAs are below no GPU's PCIe switch; {SEE}"
        return fail(expected, "; ".join(problems), fix)
    share = f", each shared by {rails.share}" if rails.share > 1 else ""
    return ok(
        f"{counted(len(rails.pairs), 'GPU')} with "
        f"{counted(len({hca.name for hca in rails.pairs.values()}), 'HCA')}{share}",
        expected,
    )


@check("topology.same_socket", *PROBES, fields=("same_socket",), evidence=f"{SHOWN}; lscpu | grep -E 'NUMA|Socket'")
def same_socket(ctx: Ctx) -> Outcome:
    """No GPU's nearest HCA is on another socket."""
    if not ctx.fragment.same_socket:
        return not_asked("same_socket: false")
    wiring = read(ctx.facts)
    expected = "each GPU's nearest HCA on its own socket"
    if wanting := _judge_lack(wiring, expected):
        return wanting
    distant, unknown = [], []
    for gpu in wiring.gpus:
        near = wiring.near(gpu)[1]
        if wiring.socket(gpu.function) is None or all(wiring.socket(hca.function) is None for hca in near):
            unknown.append(gpu.name)
        elif all(is_across_sockets(wiring, gpu, hca) for hca in near):
            distant.append(f"{gpu.name} to {near[0].name}")
    if distant:
        return fail(
            expected, f"on different sockets: {'; '.join(distant)}", f"move the HCA to a slot of that socket; {SEE}"
        )
    if unknown:
        where = f"the machine does not tell on which socket {', '.join(unknown)} or its nearest HCA is"
        if unseen := hidden(wiring.guest, "socket"):
            return skip(f"{where}; {unseen}", "give the guest the host's NUMA nodes; else same_socket: false")
        return fail(expected, where, "the firmware reports it (SRAT, _PXM); else same_socket: false")
    return ok(counted(len(wiring.gpus), "GPU"), expected)


@check("topology.hcas", *PROBES, fields=("hcas",), evidence="ls -l /sys/class/infiniband; lspci -nn -d 15b3:")
def hcas(ctx: Ctx) -> Outcome:
    """The host has as many HCAs as the spec asks for; NVLink bridges (SW_MNG), SR-IOV functions and software devices do
    not count."""
    expected_count = ctx.fragment.hcas
    if not expected_count:
        return not_asked("hcas: 0")
    wiring = read(ctx.facts)
    names = ", ".join(hca.name for hca in wiring.hcas) or NO_HCA
    if len(wiring.hcas) == expected_count:
        return ok(f"{counted(expected_count, 'HCA')}: {names}", counted(expected_count, "HCA"))
    silent = (
        f"; without an RDMA device: {', '.join(device.address for device in wiring.silent)}" if wiring.silent else ""
    )
    return fail(counted(expected_count, "HCA"), f"{counted(len(wiring.hcas), 'HCA')}: {names}{silent}", DRIVER)


@check("topology.pcie", *PROBES, fields=("pcie",), evidence="lspci -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'")
def pcie(ctx: Ctx) -> Outcome:
    """Each PCIe link from a GPU, an HCA or an NVSwitch to its CPU is as wide and as fast as both ends support."""
    wiring = read(ctx.facts)
    narrow = tuple(defects.find_narrow_links(wiring))
    message = "; ".join(defect.brief for defect in narrow)
    if ctx.fragment.pcie == "any":
        return not_asked("; ".join(filter(None, ("pcie: any", message))))
    expected = "PCIe links at full width and speed"
    if not wiring.gpus:
        return fail(expected, "no NVIDIA GPU on the PCI bus", "see topology.visible")
    if bad := [defect for defect in narrow if not defect.unproven]:
        fix = f"{bad[0].fix}; pcie: any, if the machine was built so"
        return fail(expected, "; ".join(defect.brief for defect in bad), fix, action=bad[0].action)
    if narrow:
        return skip(message, "see the machine itself, or pcie: any")
    ends = [*(gpu.function for gpu in wiring.gpus), *(hca.function for hca in wiring.hcas)]
    if not any(end.link.width for end in ends):
        return skip("the bus reports no link widths, as in some VMs")
    idle = sum(defect.idle for defect in find_lowered(wiring))
    slow = f"; {idle} idle GPUs' links are slow now, which says nothing" if idle else ""
    return ok(f"{counted(len(ends), 'device')}{slow}", expected)


@check(
    "topology.nvlinks", *PROBES, nvidia.DRIVER, system.CONTAINER, fields=("nvlinks",), evidence="nvidia-smi nvlink -s"
)
def links(ctx: Ctx) -> Outcome:
    """Each GPU that is not in MIG mode has as many NVLinks up as the spec asks for, else as its model has."""
    wiring, requested = read(ctx.facts), number(ctx.fragment)
    if ctx.fragment.nvlinks == "any":
        return not_asked(
            "; ".join(["nvlinks: any", *(nvlink.brief for nvlink in defects.find_missing_nvlinks(wiring))])
        )
    known = [of_model(gpu.entry) for gpu in wiring.gpus]
    link_count = f"{requested}" if requested else " or ".join(dict.fromkeys(str(count) for count in known if count))
    expected = f"{link_count or 'equally many'} NVLinks up on each GPU"
    if not wiring.gpus:
        return fail(expected, "no NVIDIA GPU on the PCI bus", "see topology.visible")
    if not requested and all(count == 0 for count in known):
        return not_asked(f"{wiring.gpus[0].model} has no NVLink")
    fix = "nvidia-smi nvlink -s; journalctl -k | grep -E 'Xid|SXid'; systemctl status nvidia-fabricmanager"
    untold = [gpu.name for gpu in wiring.gpus if gpu.nvlink is None]
    if reason := explain_absent_driver(ctx.facts):
        return skip(reason)
    bridged = all(gpu.entry and gpu.entry.nvlink in ("no", "bridge") for gpu in wiring.gpus)
    if wiring.nvlinks.complaint and not untold and bridged and not requested:
        return skip(f"{wiring.nvlinks.complaint}; {wiring.gpus[0].model} may have no bridge")
    if wiring.nvlinks.complaint and not untold and len(wiring.gpus) == 1 and not requested:
        return skip(f"{wiring.nvlinks.complaint}, {ALONE}")
    if wiring.nvlinks.complaint or untold:
        message = wiring.nvlinks.complaint or f"nvidia-smi does not show {', '.join(untold)}"
        return fail(expected, message, "see nvidia_driver.user_space; nvidia-smi nvlink -s")
    if missing := tuple(defects.find_missing_nvlinks(wiring, requested)):
        return fail(expected, "; ".join(defect.brief for defect in missing), fix, action=missing[0].action)
    cut = [gpu.name for gpu in wiring.gpus if gpu.nvlink and gpu.nvlink.mig]
    if len(cut) == len(wiring.gpus):
        return skip("every GPU is in MIG mode, where NVLinks carry nothing")
    message = " or ".join(sorted({str(gpu.nvlink.active) for gpu in wiring.gpus if gpu.nvlink and not gpu.nvlink.mig}))
    return ok(f"{message} on each of {counted(len(wiring.gpus) - len(cut), 'GPU')}", expected)


CHECKS = (gpu_hca, rail, same_socket, hcas, pcie, links, visible)
