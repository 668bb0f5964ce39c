"""`topology`: connections of the host: nearest HCA of each GPU, rails, PCIe links and NVLinks, compared with the
spec."""

from collections.abc import Iterable

from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.topology.checks import CHECKS, PROBES
from gpuprov.capabilities.topology.fragment import Topology, number
from gpuprov.catalog import gpus as catalogue
from gpuprov.catalog.topology import count_nvlinks
from gpuprov.facts.probes.base import Facts
from gpuprov.hardware.topology import DISTANCES, Wiring, read
from gpuprov.hardware.topology.judge import is_across_sockets
from gpuprov.hardware.topology.links import find_lowered, find_unanswering, find_unlinked
from gpuprov.hardware.topology.model import Distance
from gpuprov.hardware.topology.rails import build_rails
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "topology"
problem = report_under(HERE)


def rules(host: HostSpec, block: Topology) -> Iterable[Problem]:
    yield from _check_nvlinks(host, block)
    yield from _check_hcas(host, block)


def _check_nvlinks(host: HostSpec, block: Topology) -> Iterable[Problem]:
    gpu = catalogue.find_gpu(host.gpu.model) if host.gpu else None
    known = count_nvlinks(gpu)
    if gpu is None or known is None or number(block) <= known:
        return
    has = f"{known} at most" if known else "none"
    fix = f'allowed: all, any, "1" to "{known}"' if known else "leave nvlinks out"
    yield problem("nvlinks", f"is {block.nvlinks}, and {gpu.key} has {has}", fix)


def _check_hcas(host: HostSpec, block: Topology) -> Iterable[Problem]:
    """Yield problems of HCA settings, which need devices on the PCI bus, and something that brings them up."""
    fields = [
        key
        for key, none in (("gpu_hca", "any"), ("rails", "any"), ("same_socket", False), ("hcas", 0))
        if getattr(block, key) != none
    ]
    rdma = host.capabilities.get("rdma")
    if fields and rdma is None:
        message = f"topology.{fields[0]} asks for HCAs, and nothing in the spec brings RDMA devices up"
        fix = "rdma: {fabric: ...} in the spec, unless the image has their drivers already"
        yield Problem(path=(HERE, fields[0]), message=message, fix=fix, severity="warning")
    if fields and getattr(rdma, "fabric", "") == "soft":
        message = f"topology.{fields[0]} asks for HCAs, and rdma.fabric is soft: its devices are not on the PCI bus"
        yield Problem(path=(HERE, fields[0]), message=message, fix=f"leave {', '.join(fields)} out, or another fabric")
    least = getattr(rdma, "count", None) or 0
    if isinstance(least, int) and 0 < block.hcas < least:
        yield problem("hcas", f"is {block.hcas}, and rdma.count is {least}", f"allowed: {least} and more")
    if block.rails == "matched" and block.gpu_hca == "SYS":
        message = "topology.rails is matched, and gpu_hca: SYS takes HCAs of another socket for a rail"
        yield Problem(path=(HERE, "gpu_hca"), message=message, fix="allowed with matched rails: PIX, PXB, PHB, NODE")


def export(facts: Facts) -> Fragment | None:
    """Return the topology that the host has; None if there is neither an HCA nor an NVLink, so that nothing is
    connected to a GPU."""
    wiring = read(facts)
    linked = [gpu for gpu in wiring.gpus if gpu.nvlink and gpu.nvlink.active]
    if not wiring.gpus or not (wiring.hcas or len(linked) > 1):
        return None
    full = not any(find_unanswering(wiring)) and not any(lowered.is_defect for lowered in find_lowered(wiring))
    return Topology(
        gpu_hca=_find_farthest(wiring) or "any",
        rails="matched" if build_rails(wiring, _find_limit(wiring)).matched else "any",
        same_socket=_is_same_socket(wiring),
        hcas=len(wiring.hcas),
        pcie="full" if full else "any",
        nvlinks=_count_links_up(wiring),
    )


def _find_farthest(wiring: Wiring) -> Distance | None:
    far = [distance for gpu in wiring.gpus if (distance := wiring.near(gpu)[0])]
    return max(far, key=DISTANCES.index, default=None)


def _find_limit(wiring: Wiring) -> Distance:
    """Return how far rails reach if `gpu_hca` gives a distance; across sockets there are none."""
    far = _find_farthest(wiring)
    return far if far and far != "SYS" else "PXB"


def _is_same_socket(wiring: Wiring) -> bool:
    """Return whether same_socket holds, and is meaningful: on a machine of several sockets, all of which are known."""
    pairs = [(gpu, wiring.near(gpu)[1]) for gpu in wiring.gpus]
    known = all(
        wiring.socket(gpu.function) is not None
        and all(wiring.socket(hca.function) is not None for hca in hcas)
        and hcas
        for gpu, hcas in pairs
    )
    several = len({wiring.socket(gpu.function) for gpu, _ in pairs} | set(wiring.tree.sockets.values())) > 1
    return (
        bool(known)
        and several
        and not any(all(is_across_sockets(wiring, gpu, hca) for hca in hcas) for gpu, hcas in pairs)
    )


def _count_links_up(wiring: Wiring) -> str:
    """Return all if every GPU has as many NVLinks up as its model has, else the number of the GPU with the fewest."""
    if wiring.nvlinks.complaint or any(gpu.nvlink is None for gpu in wiring.gpus):
        return "any"
    if not tuple(find_unlinked(wiring)):
        return "all"
    return str(min(gpu.nvlink.active for gpu in wiring.gpus if gpu.nvlink and not gpu.nvlink.mig) or "any")


CAPABILITY = Capability(
    name=HERE,
    summary="what is wired to what: nearest HCA of each GPU, rails, PCIe links and NVLinks, held against the spec",
    fragment=Topology,
    checks=CHECKS,
    rules=rules,
    export=export,
    export_probes=PROBES,
    needs_gpu=True,
    shown_by="tests/e2e/test_rdma_traps.py",
    sets_up=False,
)
