"""GPUs that a reset takes, by NVIDIA's table of what may be reset alone:
https://docs.nvidia.com/deploy/nvidia-smi/index.html (--gpu-reset)"""

from collections.abc import Iterable, Mapping, Sequence

from gpuprov.catalog.models import ARCHITECTURES
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import fabric, mig
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.host import systemd
from gpuprov.hardware.topology import fabric as manager
from gpuprov.hardware.topology import read
from gpuprov.hardware.topology.model import PROBES as WIRING
from gpuprov.hardware.topology.model import Wiring
from gpuprov.repair.model import Gpu, Scope
from gpuprov.verify.evaluate import Result

PROBES = (*WIRING, GPU_HEALTH, fabric.DAEMON, systemd.SYSTEMD_UNITS, mig.STATE)
ALONE_SINCE = ARCHITECTURES.index("Ampere")
# Checks of the fabric: its faults end when all GPUs and NVSwitches are reset together.
FABRIC = ("health.sxid", "health.fabric")
WHOLE = "the whole NVLink fabric is reset"
UNKNOWN = "health does not say which GPU it is"
UNMANAGED = "their NVLinks go to NVSwitches, and Fabric Manager does not run"
EARLIER = "they are joined by NVLinks, and older than Ampere"


def find_scope(findings: Sequence[Result], facts: Facts) -> Scope:
    """Return the GPUs of a reset that these findings ask for. Raises ProbeFailed if the host's GPUs are unknown."""
    wiring = read(facts)
    gpus = _list_gpus(wiring, facts)
    asking = [finding for finding in findings if finding.action == "reset"]
    of_fabric = any(finding.check in FABRIC for finding in asking)
    named = {address for finding in asking for address in finding.devices} & gpus.keys()
    unknown = any(not {*finding.devices} & gpus.keys() for finding in asking)
    if of_fabric or unknown or not named:
        return Scope(gpus=tuple(gpus.values()), why=WHOLE if of_fabric else UNKNOWN, whole=True)
    joined, why = _find_joined(named, wiring, facts)
    return Scope(
        gpus=tuple(gpus[address] for address in gpus if address in named),
        together=tuple(gpus[address] for address in gpus if address in joined - named),
        why=why if joined - named else "",
    )


def list_lost_instances(scope: Scope, facts: Facts) -> tuple[str, ...]:
    """List the MIG devices that a reset takes from these GPUs: `GPU 1: 3 GPU instances`."""
    state = facts.known(mig.STATE)
    addresses = {gpu.address for gpu in scope.all}
    return tuple(
        f"GPU {gpu.index}: {counted(len(gpu.instances), 'GPU instance')}"
        for gpu in (state.gpus if state else ())
        if gpu.instances and gpu.address in addresses
    )


def _list_gpus(wiring: Wiring, facts: Facts) -> Mapping[str, Gpu]:
    reported = {gpu.address: gpu for gpu in facts.get(GPU_HEALTH).gpus}
    gpus: dict[str, Gpu] = {}
    for gpu in wiring.gpus:
        address = gpu.function.address
        known = reported.get(address)
        gpus[address] = Gpu(
            index=gpu.nvlink.index if gpu.nvlink else -1,
            address=address,
            uuid=known.uuid if known else "",
            name=known.name if known and known.name else gpu.model,
        )
    return gpus


def _find_joined(named: Iterable[str], wiring: Wiring, facts: Facts) -> tuple[set[str], str]:
    """Return the GPUs that must be reset in the same command as these, and why; none where each can be reset alone."""
    linked = {gpu.function.address: gpu for gpu in wiring.gpus if gpu.nvlink and gpu.nvlink.links}
    named = {*named} & linked.keys()
    if not named:
        return set(), ""
    old = any(_is_older(linked[address].entry) for address in named)
    if (wiring.nvswitches or wiring.bridges) and (old or not _is_managed(facts)):
        return {*linked}, EARLIER if old else UNMANAGED
    if not old:
        return set(), ""
    return {*linked} if wiring.nvlinks.pairs is None else _spread(named, wiring), EARLIER


def _is_older(entry: object) -> bool:
    """Return whether a GPU is older than Ampere; one that the catalogue lacks may be."""
    arch = getattr(entry, "arch", None)
    return arch is None or ARCHITECTURES.index(arch) < ALONE_SINCE


def _is_managed(facts: Facts) -> bool:
    daemon = facts.get(fabric.DAEMON)
    alive, _ = manager.judge_manager(facts.get(systemd.SYSTEMD_UNITS)[manager.UNIT], daemon)
    return alive or bool(daemon.elsewhere)


def _spread(named: Iterable[str], wiring: Wiring) -> set[str]:
    """Return the GPUs that NVLinks lead to from these, over others too."""
    addresses = {gpu.index: gpu.function.address for gpu in wiring.gpus}
    pairs = [{addresses[a], addresses[b]} for a, b in wiring.nvlinks.pairs or {} if {a, b} <= {*addresses}]
    reached = {*named}
    while more := {address for pair in pairs if pair & reached for address in pair} - reached:
        reached |= more
    return reached
