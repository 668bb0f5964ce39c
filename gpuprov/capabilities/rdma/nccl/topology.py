"""The part `rdma.nccl.topo_file`: whether NCCL can read the topology file, and whether it describes this machine.

Clouds that hide a machine's PCIe tree provide such a file for each VM size; with the file of another size, NCCL neither
fails nor gets faster.
"""

import hashlib
from collections.abc import Iterable

from gpuprov.capabilities.answers import APPLY
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.core import safe_parse
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.rdma import DEVICES
from gpuprov.facts.probes.rdma.nccl import NCCL_TOPOLOGY
from gpuprov.hardware.topology.ports import select_devices
from gpuprov.rules import nccl_topology
from gpuprov.spec.problem import Path, Problem

Ctx = Context[Rdma]
HERE: Path = ("rdma", "nccl")


def rules(block: Rdma) -> Iterable[Problem]:
    """Yield the problems of the fields, and of the file that is to be copied."""
    nccl = block.nccl
    if not nccl.topo_source:
        return
    path: Path = (*HERE, "topo_source")
    if not nccl.topo_file:
        fix = "topo_file: /etc/nccl-topo.xml, for instance"
        yield Problem(path=path, message="rdma.nccl.topo_source goes nowhere: there is no topo_file", fix=fix)
    try:
        text = safe_parse.read_named(nccl.topo_source).decode()
        nccl_topology.parse(text)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not a text"
        message = f"rdma.nccl.topo_source {nccl.topo_source} cannot be read: {why}"
        yield Problem(path=path, message=message, fix="put the topology file of this VM size there")
    except nccl_topology.TopologyError as error:
        message = f"rdma.nccl.topo_source {nccl.topo_source}: {error}"
        yield Problem(path=path, message=message, fix="a topology file of NCCL: NCCL_TOPO_DUMP_FILE writes one")


@check(
    "rdma.nccl_topology",
    *(NCCL_TOPOLOGY, DEVICES, pci.NVIDIA_FUNCTIONS),
    fields=("nccl",),
    evidence="cat $(sed -n 's/^NCCL_TOPO_FILE=//p' /etc/nccl.conf); lspci -D",
)
def topology(ctx: Ctx) -> Outcome:
    """NCCL can read the topology file, which names exactly this host's GPUs and RDMA devices, and matches the spec's
    file."""
    nccl, topology_state = ctx.fragment.nccl, ctx.facts.get(NCCL_TOPOLOGY)
    if not nccl.manage and not topology_state.path:
        return not_asked("/etc/nccl.conf names no topology file")
    if nccl.manage and not nccl.topo_file:
        return not_asked("no topo_file in the spec")
    where = nccl.topo_file if nccl.manage else topology_state.path
    expected = f"{where} of this machine"
    change = Change(kind="file", name=where, before=topology_state.sha256[:12], after="the site's file")
    changes = [change] if nccl.topo_source else []
    if topology_state.path != where:
        return fail(expected, f"/etc/nccl.conf names {topology_state.path or 'none'}", APPLY, changes=changes)
    if topology_state.text is None:
        fix = APPLY if changes else f"put it there (rdma.nccl.topo_source copies it), or take topo_file out: {where}"
        return fail(expected, f"{where} is not there", fix, changes=changes)
    if nccl.topo_source and topology_state.sha256 != _compute_digest(nccl.topo_source):
        message = f"{where} is another file than {nccl.topo_source}"
        return fail(f"{where} as in {nccl.topo_source}", message, APPLY, changes=changes)
    try:
        topology = nccl_topology.parse(topology_state.text)
    except nccl_topology.TopologyError as error:
        return fail(
            expected, f"{where}: {error}", "NCCL_TOPO_DUMP_FILE=FILE has NCCL write a good one; or take topo_file out"
        )
    gpus = [gpu.address for gpu in pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS))]
    if not gpus:
        return skip("no NVIDIA GPU on the PCI bus to compare it with")
    used = [device.address for device in select_devices(ctx.fragment, ctx.facts.get(DEVICES)) if device.address]
    adapters = [address for address, kind in topology_state.functions.items() if kind.startswith(nccl_topology.NETWORK)]
    if wrong := nccl_topology.strange(topology, gpus, used, [*adapters, *used]):
        fix = (
            "the file of this VM size (Azure: ndv4-topo.xml for ND A100 v4, ndv5-topo.xml for H100 v5, H200 v5; in "
            "/opt/microsoft), or take it out: NCCL looks itself"
        )
        return fail(expected, f"{where}: {'; '.join(wrong)}", fix)
    return ok(f"{where}: {counted(len(topology.gpus), 'GPU')}, {counted(len(topology.adapters), 'adapter')}", expected)


def _compute_digest(file: str) -> str:
    try:
        return hashlib.sha256(safe_parse.read_named(file)).hexdigest()
    except OSError:
        return ""


CHECKS = (topology,)
