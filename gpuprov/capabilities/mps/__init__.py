"""`mps`: MPS control daemons as services, for the host, GPUs or MIG devices, with their limits and the environment of
clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.mps import clients, now, preflight
from gpuprov.capabilities.mps.desired import DESIRED, RESOURCES, plain
from gpuprov.capabilities.mps.fragment import Mps
from gpuprov.capabilities.mps.rules import HERE, rules
from gpuprov.capabilities.mps.tasks import TASKS
from gpuprov.catalog import mps as catalogue
from gpuprov.core import safe_parse
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import mps
from gpuprov.host_code.json_members import Json
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment


def export(facts: Facts) -> Fragment | None:
    """Return the daemons that gpuprov's units run, by their start options and their answers."""
    state = facts.get(mps.MPS)
    enabled = sorted(name for name, (_, on) in state.units.items() if on)
    running = {daemon.unit.removeprefix("gpuprov-mps@").removesuffix(".service"): daemon for daemon in state.daemons}
    daemons = [running[name] for name in enabled if name in running]
    if not enabled or len(daemons) != len(enabled) or any(daemon.complaint for daemon in daemons):
        return None
    gpus = {gpu.uuid: gpu for gpu in state.gpus}
    first = daemons[0]
    values: dict[str, Json] = {"scope": "host", "protocol": first.protocol}
    if any(device.startswith("MIG-") for device in first.devices):
        values |= {"scope": "mig"}
    elif [daemon.devices for daemon in daemons] != [tuple(gpus)]:
        single = enabled == sorted(f"gpu{gpu.index}" for gpu in state.gpus)
        rows = [
            {
                "name": name,
                "gpus": [gpus[device].index if device in gpus else device for device in running[name].devices],
            }
            for name in enabled
        ]
        values |= {"scope": "gpu"} if single else {"scope": "groups", "groups": rows}
    modes = {gpus[device].mode for daemon in daemons for device in daemon.devices if device in gpus}
    values |= {"compute_mode": "default"} if modes == {"Default"} and values["scope"] != "mig" else {}
    values |= _list_limits(daemons, gpus)
    written = _export_block(state.files.get(catalogue.STATE, ""))
    values |= {
        "container_directory": written.get("container_directory", ""),
        "shm_size": written.get("shm", ""),
        "user": written.get("user", ""),
        "profile": catalogue.PROFILE in state.files,
        "units": _map_client_units(state.files),
    }
    block, _ = convert(values, Mps)
    return block if isinstance(block, Mps) else None


def _list_limits(daemons: Sequence[mps.Daemon], gpus: Mapping[str, mps.Gpu]) -> dict[str, Json]:
    """Return the fields that limit clients. gpus: by UUID."""
    first = daemons[0]
    limits = {
        str(gpus[device].index): value
        for daemon in daemons
        for device, value in zip(daemon.devices, daemon.limits, strict=False)
        if value and device in gpus
    }
    same = len(set(limits.values())) == 1 and len(limits) == sum(len(daemon.devices) for daemon in daemons)
    return {
        "active_thread_percentage": int(float(first.percentage)),
        "priority": "below-normal" if first.priority == catalogue.PRIORITIES["below-normal"] else "normal",
        "pinned_memory_limit": {"all": next(iter(limits.values()))} if same else limits,
        "static_partitions": list(next(iter(first.partitions.values()), ())),
    }


def _export_block(text: str) -> dict[str, Json]:
    try:
        parsed = safe_parse.parse_json(text)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _map_client_units(files: dict[str, str]) -> dict[str, str]:
    """Return the services that are clients, by gpuprov's drop-ins."""
    by_unit = {}
    for path, text in files.items():
        lines = [
            line.partition("=")[2]
            for line in text.splitlines()
            if line.startswith(f"EnvironmentFile={catalogue.RUNTIME}/")
        ]
        if path.endswith(f".d/{clients.DROP_IN}") and lines:
            by_unit[path.split("/")[-2].removesuffix(".d")] = lines[0].rpartition("/")[2].removesuffix(".env")
    return by_unit


CAPABILITY = Capability(
    name=HERE,
    summary="MPS control daemons as services, for the host, GPUs or MIG devices, with limits that outlive a restart",
    fragment=Mps,
    ends_with_reset=True,
    checks=now.CHECKS + clients.CHECKS + preflight.CHECKS,
    rules=rules,
    export=export,
    export_probes=(mps.MPS,),
    follows=("nvidia_driver", "mig"),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    serves_jobs=True,
    packages=True,
    presupposes={
        "active": ("mig.instances", *LOADED),
        "daemons": ("mps.active", "mig.instances", *LOADED),
        **dict.fromkeys(("limits", "static_partitions", "servers"), ("mps.active", "mps.daemons", *LOADED)),
        "compute_mode": LOADED,
    },
    taken_away={"scope": "none"},
    pruned=lambda host, _facts: {"mps": plain(host, Mps(scope="none"))},
)
