"""Rules for `rdma` that hold on any host: for every fabric, for each part, and across the hosts of a fleet."""

from collections.abc import Iterable, Sequence

from gpuprov.capabilities.rdma.efa import rules as efa_rules
from gpuprov.capabilities.rdma.erdma import checks as erdma
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.nccl import checks as nccl
from gpuprov.capabilities.rdma.ofed import checks as ofed
from gpuprov.capabilities.rdma.roce import checks as roce
from gpuprov.catalog import gpus, topology
from gpuprov.hardware.topology.ports import convert_selectors
from gpuprov.host_code.at_boot.devices import format_selector
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE = "rdma"


problem = report_under(HERE)


def rules(host: HostSpec, block: Rdma) -> Iterable[Problem]:
    """Yield every problem of the block on this host."""
    yield from stacks(block)
    yield from fields(block)
    yield from slots(host, block)
    yield from selectors(block)
    for part in (ofed, roce, erdma, efa_rules, nccl):
        yield from part.rules(host, block)


def stacks(block: Rdma) -> Iterable[Problem]:
    """Yield problems of a fabric that does not go with its stack."""
    if block.stack == "erdma-vendor" and block.fabric != "erdma":
        yield problem(
            ("stack",), f" is erdma-vendor, and rdma.fabric is {block.fabric}", "fabric: erdma, or stack: inbox"
        )
    if block.stack == "efa-vendor" and block.fabric != "efa":
        yield problem(("stack",), f" is efa-vendor, and rdma.fabric is {block.fabric}", "fabric: efa, or stack: inbox")
    if block.stack == "doca-ofed" and block.fabric in ("soft", "iwarp"):
        # DOCA-OFED replaces ib_core; what was built for the kernel's own does not load beside it.
        message = f" is doca-ofed, whose ib_core the kernel's {block.fabric} drivers do not load with"
        yield problem(("stack",), message, "stack: inbox")


def fields(block: Rdma) -> Iterable[Problem]:
    """Yield problems of fields that have no effect with this fabric, or contradict each other."""
    if block.ipoib and block.fabric != "infiniband":
        yield problem(
            ("ipoib",), f" has no effect: rdma.fabric is {block.fabric}", "fabric: infiniband, or leave it out"
        )
    if block.opensm.hosts and block.opensm.elsewhere:
        message = ": the subnet manager is elsewhere, and rdma.opensm.hosts names hosts that run it"
        yield problem(("opensm", "elsewhere"), message, "leave one of them out")
    for number, name in enumerate(block.opensm.hosts):
        if name in block.opensm.hosts[:number]:
            yield problem(("opensm", "hosts", number), f' is "{name}" again', "take one out")
    for number, name in enumerate(block.soft.netdevs):
        if name in block.soft.netdevs[:number]:
            yield problem(("soft", "netdevs", number), f' is "{name}" again', "take one out")
    if block.rate and block.fabric in ("soft", "erdma"):
        # erdma says EDR 4X whatever the instance has: drivers/infiniband/hw/erdma/erdma_verbs.c
        message = f" says nothing of the bandwidth with fabric {block.fabric}, whose drivers tell one constant rate"
        yield problem(("rate",), message, "leave it out; acceptance measures")


def slots(host: HostSpec, block: Rdma) -> Iterable[Problem]:
    """Yield a warning of a rate that the slots beside the host's GPUs do not carry."""
    board = topology.find_board(gpus.find_gpu(host.gpu.model)) if host.gpu else None
    if host.gpu and board and block.rate > board.slot_gbits:
        message = (
            f" is {block.rate} Gb/s, and boards with {host.gpu.model} have PCIe {board.generation}.0, of which 16 "
            f"lanes carry {board.slot_gbits} Gb/s: such a port is slower than its link there"
        )
        yield problem(
            ("rate",), message, "rate: 200; or leave it, if the adapters are in slots of a newer PCIe", warning=True
        )


def selectors(block: Rdma) -> Iterable[Problem]:
    """Yield problems of the named devices: each must be named once, by some property, and no more than `count`."""
    if block.devices and block.fabric == "soft":
        yield problem(("devices",), " has no effect: rdma.fabric is soft", "rdma.soft.netdevs names the interfaces")
    for number, selector in enumerate(block.devices):
        if not (selector.pci or selector.driver or selector.netdev):
            yield problem(("devices", number), " is empty", 'give pci: "0000:3b:00.0", driver or netdev')
        if selector in block.devices[:number]:
            yield problem(
                ("devices", number),
                f" is {format_selector(convert_selectors(block)[number])} again",
                "take one out",
            )
    single = [device for device in block.devices if device.pci or device.netdev]
    if block.count and len(single) == len(block.devices) > 0 and block.count != len(single):
        message = f" is {block.count}, and rdma.devices names {len(single)}"
        yield problem(("count",), message, f"count: {len(single)}, or name the others, too")
    if block.count and block.fabric == "soft" and block.count != max(len(block.soft.netdevs), 1):
        message = f" is {block.count}, and rdma.soft makes {max(len(block.soft.netdevs), 1)}"
        yield problem(("count",), message, "leave it out, or name as many interfaces in rdma.soft.netdevs")


def fleet_rules(hosts: Sequence[HostSpec], _unmanaged: Sequence[str], *, whole: bool) -> Iterable[tuple[str, Problem]]:
    """Yield problems of an InfiniBand fabric without a subnet manager, or with one on hosts that do not exist or are
    not on the fabric."""
    yield from erdma.fleet_rules(hosts)
    blocks = {host.name: block for host in hosts if isinstance(block := host.capabilities.get(HERE), Rdma)}
    for name, block in blocks.items():
        if block.fabric != "infiniband":
            continue
        if not block.opensm.hosts and not block.opensm.elsewhere:
            message = (
                " names no host, and rdma.opensm.elsewhere is false: without a subnet manager every port stays INIT"
            )
            fix = "opensm: {hosts: [NAME]}; or opensm: {elsewhere: true} where a managed switch or UFM does it"
            yield name, problem(("opensm",), message, fix, warning=True)
        for number, manager in enumerate(block.opensm.hosts):
            path: Path = ("opensm", "hosts", number)
            other = blocks.get(manager)
            if other is None and whole:
                yield (
                    name,
                    problem(path, f' is "{manager}", which has no rdma block', "a host of the inventory, with rdma"),
                )
            elif other and other.fabric != "infiniband":
                yield (
                    name,
                    problem(path, f' is "{manager}", whose rdma.fabric is {other.fabric}', "a host on InfiniBand"),
                )
            elif other and manager not in other.opensm.hosts:
                message = f' is "{manager}", whose own rdma.opensm.hosts does not name it: it would not run opensm'
                yield name, problem(path, message, f"opensm: {{hosts: [{manager}]}} for all hosts of the fabric")
