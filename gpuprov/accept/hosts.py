"""The hosts of an acceptance: their facts, the busy ones, and those that are left out, with the reason."""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from gpuprov.accept.lock import Lock
from gpuprov.accept.model import Finding, Host
from gpuprov.capabilities.acceptance.fragment import Acceptance
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.drivers.sets import is_gpu_service
from gpuprov.catalog.gpus import find_gpu
from gpuprov.core.errors import UnreachableError, defect
from gpuprov.facts.probes import acceptance, rdma
from gpuprov.facts.probes.base import UNREADABLE, Facts, Output, Probe, ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.hardware.topology.ports import select_devices
from gpuprov.spec.model import HostSpec, RawHost

Pair = tuple[RawHost, HostSpec]
PROBES: tuple[Probe[Any], ...] = (rdma.DEVICES, acceptance.TOOLS, acceptance.NETWORK, nvidia.SMI)


def prepare(
    pairs: Sequence[Pair], gathered: Mapping[str, Facts | UnreachableError], findings: list[Finding]
) -> dict[str, Host]:
    """Return each host that answered, by name; add a finding for each of the others."""
    hosts: dict[str, Host] = {}
    for raw, spec in pairs:
        facts = gathered[raw.name]
        if isinstance(facts, UnreachableError):
            findings.append(_report_unreachable(raw.name, facts))
            continue
        try:
            hosts[raw.name] = _make_host(raw, spec, facts)
        except ProbeFailed as error:
            fix = "run gpuprov verify, which shows what cannot be read"
            findings.append(Finding(host=raw.name, check="acceptance.host", status="error", found=str(error), fix=fix))
        except Exception as error:
            message, fix = defect("the acceptance of the host", error)
            findings.append(Finding(host=raw.name, check="acceptance.host", status="error", found=message, fix=fix))
    return hosts


def _make_host(raw: RawHost, spec: HostSpec, facts: Facts) -> Host:
    block = spec.capabilities["acceptance"]
    fabric = spec.capabilities.get("rdma")
    devices = facts.get(rdma.DEVICES)
    smi = facts.get(nvidia.SMI).gpus
    named = spec.gpu.model if spec.gpu else smi[0].name if smi else ""
    model = find_gpu(named)
    assert isinstance(block, Acceptance)
    return Host(
        raw=raw,
        spec=spec,
        block=block,
        devices=select_devices(fabric, devices) if isinstance(fabric, Rdma) else rdma.list_hcas(devices),
        tools=facts.get(acceptance.TOOLS),
        network=facts.get(acceptance.NETWORK),
        gpus=tuple(gpu.uuid for gpu in smi),
        model=model.key if model else "",
        measurements=[],
    )


def leave_out(
    hosts: MutableMapping[str, Host],
    refused: Mapping[str, str | UnreachableError],
    findings: list[Finding],
    check: str = "acceptance.lock",
) -> None:
    """Take hosts out of the acceptance, each with a finding that gives the reason."""
    for name, why in refused.items():
        hosts.pop(name, None)
        if isinstance(why, UnreachableError):
            findings.append(_report_unreachable(name, why))
            continue
        reason, _, fix = why.partition(": ")
        findings.append(Finding(host=name, check=check, status="fail", found=reason, fix=fix))


def find_busy(hosts: Mapping[str, Host], kinds: Iterable[str], lock: Lock) -> dict[str, str | UnreachableError]:
    """Find hosts whose GPUs or HCAs are held by processes that no test may disturb, as far as the tests concern
    them."""
    kinds = set(kinds)
    # The scripts complain about a process that ends meanwhile.
    script = f"{{\n{acceptance.USERS.script}\necho '=='\n{nvidia.CLIENTS.script}\n}} 2>/dev/null"
    busy: dict[str, str | UnreachableError] = {}
    for name, ran in lock.phase(dict.fromkeys(hosts, (script, 60.0))).items():
        if ran.lost:
            busy[name] = ran.lost
            continue
        first, ended, second = ran.text.partition("==\n")
        try:
            users = _list_users(hosts[name], kinds, first, second if ended and not ran.status else "")
        except (ProbeFailed, *UNREADABLE):
            busy[name] = "its users cannot be read: see fuser -v /dev/nvidia* /dev/infiniband/*, or --in-use"
            continue
        if users:
            users = list(dict.fromkeys(users))
            more = f" and {len(users) - 5} more" if len(users) > 5 else ""
            busy[name] = f"in use by {', '.join(users[:5])}{more}: drain the host, or --in-use, which disturbs them"
    return busy


def _list_users(host: Host, kinds: set[str], of_hcas: str, of_gpus: str) -> list[str]:
    users, holders = [], nvidia.parse_clients(Output(of_gpus))
    if "rdma" in kinds and host.block.rdma.tests and host.devices:
        users += [
            f"{process.command} (pid {process.pid})"
            for process in acceptance.parse_users(Output(of_hcas))
            if process.command
        ]
    on_gpus = kinds & {"nccl", "nvbandwidth", "dcgm"} or ("rdma" in kinds and host.block.rdma.memory == "gpu")
    if on_gpus or ("stream" in kinds and host.block.stream.seconds):
        users += [
            f"{holder.command} (pid {holder.pid})"
            for holder in holders
            if holder.command and not is_gpu_service(holder.unit, host.spec.site)
        ]
    return users


def _report_unreachable(name: str, error: UnreachableError) -> Finding:
    reason = getattr(error, "reason", error.message)
    return Finding(
        host=name,
        check="host.reachable",
        status="unreachable",
        found=reason,
        fix=getattr(error, "advice", error.fix),
        evidence=getattr(error, "command", ""),
    )
