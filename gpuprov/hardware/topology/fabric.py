"""Health of an NVLink fabric's parts on a host: Fabric Manager, nvidia-imex, and the GPUs' registration. One rule for
each, used by specs that request it and by health."""

from collections.abc import Iterator, Sequence

import msgspec

from gpuprov.catalog import fabric as catalogue
from gpuprov.catalog import gpus
from gpuprov.catalog.xids import Action
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.gpus.fabric import Daemon, GpuFabric
from gpuprov.facts.probes.gpus.imex import IMEX, Imex
from gpuprov.facts.probes.host import pci, systemd
from gpuprov.facts.probes.host.pci import PciFunction
from gpuprov.facts.probes.host.systemd import Unit
from gpuprov.facts.probes.host.virtualization import MACHINE, hidden

UNIT, IMEX_UNIT, PROGRAM, IMEX_PROGRAM = catalogue.UNIT, catalogue.IMEX_UNIT, "nv-fabricmanager", "nvidia-imex"
RESTART = "stop CUDA programs and DCGM, stop Fabric Manager, nvidia-smi -r, start it again (gpuprov apply does)"
RACK = (
    "the rack's switch trays and their controller (NMX) decide it: nvidia-smi nvlink -s; nvidia-smi -q; then "
    "nvidia-smi -r"
)
SWITCH_RESET = (
    "drain the host; with Fabric Manager stopped reset all its GPUs at once (nvidia-smi -r), and the NVSwitches "
    "with them, or restart it; journalctl -k | grep SXid names the link"
)
PROBES = (pci.NVIDIA_FUNCTIONS, fabric.BRIDGES, systemd.SYSTEMD_UNITS, fabric.DAEMON, fabric.STATE, IMEX, MACHINE)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault: the message, the fix for a person, and the resulting action."""

    message: str
    fix: str
    action: Action
    # It may be intended.
    unproven: bool = False


def judge_manager(unit: Unit, daemon: Daemon) -> tuple[bool, str]:
    """Return whether Fabric Manager's unit is active and its process lives, and both in words."""
    process = daemon.process(PROGRAM)
    state = f"{UNIT} is {unit.active if unit.load == 'loaded' else unit.load}"
    if process is None:
        return False, f"{state}, no process"
    if unit.active != "active":
        return False, f"{state}, process {process.pid} lives on without it"
    return True, f"active, process {process.pid}"


def list_fatal_errors(daemon: Daemon) -> list[str]:
    """List NVSwitch errors of Fabric Manager's present or last run that only a reset clears."""
    return [line for line in daemon.errors if line.startswith("detected NVSwitch fatal error")]


def judge_imex(state: Imex) -> tuple[bool, str]:
    """Return whether nvidia-imex's unit is active and its process lives and reports READY; and its state in words."""
    process = state.daemon.process(IMEX_PROGRAM)
    if state.active != "active" or process is None:
        shown = f"{IMEX_UNIT} is {state.active if state.load == 'loaded' else state.load}"
        return False, f"{shown}{'' if process else ', no process'}"
    if state.ready != "READY":
        return False, f"nvidia-imex-ctl -q says {state.ready or 'nothing'}"
    return True, f"active, process {process.pid}, READY"


def explain_unregistered(gpu: GpuFabric | None, *, shared: bool = False) -> str:
    """Explain why a GPU on NVSwitches is not registered with their fabric, in nvidia-smi's words; empty if it is.
    `shared`: virtual machines share the switches, so it waits for a partition."""
    if gpu is None:
        return "not told by nvidia-smi"
    if gpu.state == "In Progress" and shared:
        return ""
    if gpu.state != "Completed" or gpu.status != "Success":
        return f"{gpu.state} ({gpu.status or 'no status'})"
    return ", ".join(gpu.ill())


def explain_detached(gpu: GpuFabric | None) -> str:
    """Explain why a GPU is not in its rack's fabric, in nvidia-smi's words; empty if it is, or if the clique is not
    reported."""
    # Azure's images refuse clique 0 and an empty cluster: https://github.com/Azure/azhpc-images/pull/506
    if gpu is None or gpu.state != "Completed" or gpu.status != "Success":
        return explain_unregistered(gpu)
    if gpu.clique and (gpu.clique in (*fabric.NOTHING, "0") or not gpu.cluster.strip("0-N/A[]")):
        return f"in no clique (CliqueId {gpu.clique}, ClusterUUID {gpu.cluster or 'not told'})"
    return ", ".join(gpu.ill())


def find_faults(facts: Facts) -> Iterator[Fault]:
    """Find faults on a host with a loaded driver, independent of its spec. Raises ProbeFailed."""
    on_bus, generation, trays = _read_hardware(facts, bridged=bool(facts.get(fabric.BRIDGES)))
    daemon = facts.get(fabric.DAEMON)
    if generation and on_bus:
        yield from find_manager_faults(facts.get(systemd.SYSTEMD_UNITS)[UNIT], daemon, generation)
    if trays:
        yield from _check_imex(facts.get(IMEX))
    yield from find_gpu_faults(facts)


def find_gpu_faults(facts: Facts) -> Iterator[Fault]:
    """Find faults in the registration and health of GPUs from nvidia-smi: the part of `find_faults` for records without
    data about the daemons. Raises ProbeFailed."""
    on_bus, generation, trays = _read_hardware(facts, bridged=bool(facts.known(fabric.BRIDGES)))
    daemon, machine = facts.known(fabric.DAEMON), facts.known(MACHINE)
    yield from _check_states(
        facts.get(fabric.STATE),
        on_bus,
        generation,
        trays=trays,
        shared=daemon is not None and daemon.settings.get("FABRIC_MODE", "0") != "0",
        guest=machine.kind if machine else "",
    )


def _read_hardware(facts: Facts, *, bridged: bool) -> tuple[list[PciFunction], int, bool]:
    """Return the host's own GPUs, the generation of its NVSwitches, and whether it is a tray of a rack."""
    functions = [function for function in facts.get(pci.NVIDIA_FUNCTIONS) if not pci.is_lent(function.driver)]
    on_bus = [function for function in functions if function.is_gpu]
    generation = catalogue.find_generation([function.identifier for function in functions], bridged=bridged)
    return on_bus, generation, bool(on_bus) and all(is_of_rack(function) for function in on_bus)


def is_of_rack(function: PciFunction) -> bool:
    """Return whether a GPU is one of a rack, whose NVSwitches are in its switch trays."""
    model = gpus.find_by_pci_id(function.identifier, function.subsystem)
    return bool(model and model.fabric_manager.imex)


def find_manager_faults(unit: Unit, daemon: Daemon, generation: int) -> Iterator[Fault]:
    alive, words = judge_manager(unit, daemon)
    registers = generation >= catalogue.REGISTERS_SINCE
    action: Action = "reset" if registers else "restart"
    fix = f"journalctl -u {UNIT}; {RESTART if registers else f'systemctl restart {UNIT}'}"
    if unit.load != "loaded":
        fix = "fabric_manager: {} in the spec, then gpuprov apply"
    if not alive and not daemon.elsewhere:
        yield Fault(message=f"Fabric Manager is dead: {words}", fix=fix, action=action)
    elif alive and generation >= catalogue.BRIDGED_GENERATION and daemon.process("nvlsm") is None:
        yield Fault(message=f"no nvlsm process in {UNIT}", fix=f"tail /var/log/nvlsm.log; {fix}", action=action)

    if fatal := list_fatal_errors(daemon):
        yield Fault(message=f"Fabric Manager's log: {fatal[-1]}", fix=SWITCH_RESET, action="reset")


def _check_imex(state: Imex) -> Iterator[Fault]:
    """Find faults of nvidia-imex. If Kubernetes starts the daemon, its unit is off."""
    alive, words = judge_imex(state)
    if state.file == "enabled" and not alive:
        fix = f"journalctl -u {IMEX_UNIT}; systemctl restart {IMEX_UNIT}; nvidia-imex-ctl -N"
        yield Fault(message=f"nvidia-imex is dead: {words}", fix=fix, action="restart")


def _check_states(
    states: Sequence[GpuFabric],
    on_bus: Sequence[PciFunction],
    generation: int,
    *,
    trays: bool,
    shared: bool,
    guest: str,
) -> Iterator[Fault]:
    """Find faults in the GPUs' states. A GPU without a state proves nothing: it has none, or its driver does not report
    it."""
    addresses = {function.address for function in on_bus}
    reported = [gpu for gpu in states if gpu.bus in addresses and gpu.state not in fabric.NOTHING]
    switched = generation >= catalogue.REGISTERS_SINCE
    bad = [(gpu, explain_detached(gpu) if trays else explain_unregistered(gpu, shared=shared)) for gpu in reported]
    bad = [(gpu, words) for gpu, words in bad if words]
    elsewhere = [(gpu, words) for gpu, words in bad if gpu.state != "Completed" and not switched and not trays]
    here = [pair for pair in bad if pair not in elsewhere]
    if here:
        message = "; ".join(f"{gpu.bus} {words}" for gpu, words in here)
        yield Fault(message=message, fix=RACK if trays else f"gpuprov explain 802; {RESTART}", action="reset")
    if elsewhere:
        why = hidden(guest, "nvswitches") or "there is no NVSwitch on the bus"
        message = "; ".join(f"{gpu.bus} {words}" for gpu, words in elsewhere)
        yield Fault(message=f"{message}: {why}", fix="", action="none", unproven=True)
