"""`dcgm`: NVIDIA Data Center GPU Manager: one version of all its packages, its host engine running, its exporter if
requested."""

from collections.abc import Iterable

from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.dcgm import now, preflight
from gpuprov.capabilities.dcgm.desired import DESIRED, RESOURCES
from gpuprov.capabilities.dcgm.fragment import Dcgm, find_installed, parse_listen_address
from gpuprov.capabilities.dcgm.tasks import TASKS
from gpuprov.capabilities.driver import find_requested_branch
from gpuprov.catalog import dcgm as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import dcgm
from gpuprov.rules import resolve
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.spec.problem import Problem, report_under

HERE = "dcgm"
problem = report_under(HERE)
PORTS = range(1, 65536)


def rules(host: HostSpec, block: Dcgm) -> Iterable[Problem]:
    """Yield every problem that the block has on any host."""
    path, reason, fix = preflight.misfit(block.version, block.cuda, find_requested_branch(host))
    if reason:
        yield Problem(path=path, message=f"{'.'.join(path)}: {reason}", fix=fix)
    for field, message, fix in preflight.clashes(block):
        yield Problem(path=(HERE, field), message=message, fix=fix)
    if block.multinode and block.cuda not in ("auto", *catalogue.MULTINODE_CUDA):
        message = f": there is no build for CUDA {block.cuda}"
        yield problem("multinode", message, f"allowed: {', '.join(catalogue.MULTINODE_CUDA)}")
    if not block.listen.startswith("/"):
        address, _, port = block.listen.rpartition(":")
        bytes_ok = address == "ALL" or all(int(part) < 256 for part in address.split("."))
        if int(port) not in PORTS or not bytes_ok:
            yield problem("listen", f'is "{block.listen}"', "allowed: IP:PORT, ALL:PORT or a socket's path")
        elif block.exporter and int(port) == block.exporter_port:
            message = f"is {port}, where the host engine listens"
            yield problem("exporter_port", message, f"for instance {catalogue.EXPORTER_PORT}")
    if not block.exporter:
        default = Dcgm()
        for field in ("exporter_port", "exporter_counters"):
            if getattr(block, field) != getattr(default, field):
                message = "has no effect without the exporter"
                yield problem((field,), message, "exporter: true, or leave it out", warning=True)


def export(facts: Facts) -> Fragment | None:
    """Return DCGM whose host engine is enabled: its version, parts, address and exporter."""
    units, state, present = facts.get(dcgm.UNITS), facts.get(dcgm.DCGM), find_installed(facts)
    if units[catalogue.UNIT].file != "enabled" or not present:
        return None
    core = present.get("datacenter-gpu-manager-4-core") or present.get("datacenter-gpu-manager")
    values = {
        "version": resolve.upstream(core.version) if core else "any",
        "proprietary": "datacenter-gpu-manager-4-proprietary" in present or "datacenter-gpu-manager" in present,
        "multinode": "datacenter-gpu-manager-4-multinode" in present,
        "listen": parse_listen_address(state.engine.start),
        "hold": all(package.held for package in present.values()),
    }
    if units[catalogue.EXPORTER_UNIT].file == "enabled":
        words = state.exporter.start.split()
        port = state.exporter.environment.get("DCGM_EXPORTER_LISTEN", "").rpartition(":")[2]
        values |= {"exporter": True, "exporter_port": int(port) if is_whole(port) else catalogue.EXPORTER_PORT}
        values |= {"exporter_counters": words[words.index("-f") + 1]} if "-f" in words[:-1] else {}
    block, _ = convert(values, Dcgm)
    return block if isinstance(block, Dcgm) else None


CAPABILITY = Capability(
    name=HERE,
    summary="NVIDIA Data Center GPU Manager: one version of all its packages, its host engine alive and answering",
    fragment=Dcgm,
    checks=now.CHECKS + preflight.CHECKS,
    rules=rules,
    export=export,
    export_probes=(dcgm.PACKAGES, dcgm.UNITS, dcgm.DCGM),
    follows=("nvidia_driver", "fabric_manager"),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    packages=True,
    presupposes={
        **dict.fromkeys(("held", "enabled", "active"), ("dcgm.version",)),
        "alive": ("dcgm.active", "dcgm.version"),
        "listens": ("dcgm.files", "dcgm.active", "dcgm.alive"),
        "gpus": ("dcgm.alive", *LOADED),
        "switches": ("dcgm.alive", "fabric_manager.query_library", *LOADED),
        "exporter": ("dcgm.version", "dcgm.active", "dcgm.alive"),
    },
)
