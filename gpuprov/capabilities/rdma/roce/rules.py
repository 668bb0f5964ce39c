"""Rules for `rdma.roce` that hold on any host."""

from collections.abc import Iterable

from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.roce.fragment import UNSET, Roce
from gpuprov.capabilities.rdma.roce.lines import NONE, priority_of
from gpuprov.catalog.rdma import roce as catalogue
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE: Path = ("rdma", "roce")
problem = report_under(*HERE)
# Bytes: the smallest MTU that the kernel accepts for an Ethernet interface (ETH_MIN_MTU).
LEAST_MTU = 68
WITHOUT_INBOX = [setting.key for setting in catalogue.read_roce_file().settings if not setting.inbox]


def rules(_host: HostSpec, block: Rdma) -> Iterable[Problem]:
    """Yield errors for what cannot be set, and warnings for settings that work against each other."""
    roce = block.roce
    if block.fabric != "roce":
        return
    yield from _check_lists(roce)
    yield from _check_trust(roce)
    if roce.mtu != UNSET and roce.mtu < LEAST_MTU:
        yield problem("mtu", f"is {roce.mtu}", f"allowed: {LEAST_MTU} to 65535, or -1, which leaves it")
    if block.own_stack == "inbox":
        for key in WITHOUT_INBOX:
            if getattr(roce, key) != getattr(Roce(), key):
                fix = "stack: doca-ofed; without it, apply refuses where the host has no such file"
                message = ": the kernel's own drivers of most releases have nothing to set it by"
                yield problem((key,), message, fix, warning=True)
    yield from _check_classes(roce)


def _check_lists(roce: Roce) -> Iterable[Problem]:
    for key in ("pfc", "ecn"):
        values = getattr(roce, key)
        if NONE in values and len(values) > 1:
            yield problem((key,), "has none beside priorities", f"{key}: [none], or the priorities alone")
        elif len(set(values)) != len(values):
            yield problem((key,), "names a priority twice", "each once")


def _check_trust(roce: Roce) -> Iterable[Problem]:
    if roce.dscp2prio and roce.trust == "pcp":
        message = "maps DSCPs, and trust is pcp: the first mapping makes a port trust the DSCP"
        yield problem("dscp2prio", message, "trust: dscp, or leave dscp2prio out")
    if roce.mode == "v1" and roce.trust == "dscp":
        message = "is v1, whose packets have no IP header, and trust is dscp"
        yield problem("mode", message, "mode: v2, or trust: pcp", warning=True)


def _check_classes(roce: Roce) -> Iterable[Problem]:
    """Yield the problems of RoCE traffic that does not get the lossless and controlled priorities."""
    classes = {key: getattr(roce, key) for key in ("tos", "traffic_class") if getattr(roce, key) != UNSET}
    if len({value >> 2 for value in classes.values()}) > 1:
        message = (
            f"rdma.roce.traffic_class {roce.traffic_class} is DSCP {roce.traffic_class >> 2}, and tos {roce.tos} is "
            f"DSCP {roce.tos >> 2}: traffic_class wins"
        )
        fix = "the same DSCP in both, or one of them"
        yield Problem(path=(*HERE, "traffic_class"), message=message, fix=fix, severity="warning")
    if roce.trust == "pcp":
        return
    for key, value in classes.items():
        dscp = value >> 2
        priority = priority_of(roce, dscp)
        for policy, what in (("pfc", "has no PFC"), ("ecn", "has no ECN")):
            listed = getattr(roce, policy)
            if listed and NONE not in listed and priority not in listed:
                message = f"rdma.roce.{key} {value} is DSCP {dscp}, of priority {priority}, which {what}"
                shown = ", ".join(str(value) for value in listed)
                fix = f'dscp2prio: {{"{dscp}": {listed[0]}}}, or a DSCP of the priorities of {policy}: {shown}'
                yield Problem(path=(*HERE, key), message=message, fix=fix, severity="warning")
