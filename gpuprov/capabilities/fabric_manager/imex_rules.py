"""Rules for an IMEX domain that hold on any host: on one host, and across the members of a fleet."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from gpuprov.capabilities.fabric_manager.fragment import FabricManager
from gpuprov.capabilities.fabric_manager.tray import list_members, of_tray, package_only
from gpuprov.catalog import fabric as catalogue
from gpuprov.catalog import gpus
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE = "fabric_manager"
problem = report_under(HERE)
PLACE: Path = (HERE, "imex", "nodes")


def problems(host: HostSpec, block: FabricManager) -> Iterable[Problem]:
    """Yield why an IMEX domain cannot be on this host, and what is wrong with its list."""
    gpu = gpus.find_gpu(host.gpu.model) if host.gpu else None
    members = list_members(block)
    if not of_tray(block):
        if gpu and gpu.fabric_manager.imex:
            hint = (
                'fabric_manager: {imex: {nodes: ["192.0.2.1", ...]}} with all members of the domain, imex: '
                "{service: disabled} under "
                "Kubernetes; or fabric_manager: false"
            )
            yield problem("", f"has nothing to manage: {catalogue.explain_absence(gpu)}", hint)
        return
    if gpu and not gpu.fabric_manager.imex:
        message = f"is for compute trays of GB200 and GB300 racks, and the host has {gpu.key}"
        yield problem("imex", message, "take imex out of this host's spec")
    if members and package_only(block):
        message = (
            "fabric_manager.imex.nodes has no meaning where service is disabled: each ComputeDomain has "
            "members of its own"
        )
        yield Problem(path=PLACE, message=message, hint="take nodes out, or service")
    if block.fabric_mode != "bare-metal" or block.settings:
        message = "is for hosts without Fabric Manager, whose fabric_mode and settings have no meaning there"
        yield problem("imex", message, "take fabric_mode and settings out")
    for number, node in enumerate(members):
        try:
            spelled = str(ip_address(node))
        except ValueError:
            spelled = ""
        if spelled != node:
            message = f'fabric_manager.imex.nodes[{number}] is "{node}"'
            hint = f'write it as "{spelled}"' if spelled else "allowed: an IPv4 or IPv6 address"
            yield Problem(path=(*PLACE, number), message=message, hint=hint)
    twice = sorted({node for node in members if members.count(node) > 1})
    if twice:
        message = f"fabric_manager.imex.nodes names {', '.join(twice)} twice"
        yield Problem(path=PLACE, message=message, hint="name each member once")


def fleet_rules(hosts: Sequence[HostSpec], _unmanaged: Sequence[str], *, whole: bool) -> Iterable[tuple[str, Problem]]:
    """Yield members of one domain that have different lists: nodes with different maps do not talk to each other.
    `whole` does not matter."""
    lists: dict[str, tuple[str, tuple[str, ...]]] = {}
    for host in hosts:
        members = list_members(host.capabilities.get(HERE))
        known = next((lists[node] for node in members if node in lists), None)
        if known and known[1] != members:
            here, elsewhere = " ".join(members), " ".join(known[1])
            message = (
                f"fabric_manager.imex.nodes is another list than that of {known[0]}, its member: {here} here, "
                f"{elsewhere} there"
            )
            hint = "one list, in one order, for all members of a domain"
            yield host.name, Problem(path=PLACE, message=message, hint=hint)
        for node in members:
            lists.setdefault(node, (host.name, members))
