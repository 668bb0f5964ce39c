"""Rules for `rdma.erdma` that hold on any host: the block by itself, with others, and across the hosts of a fleet."""

from collections.abc import Iterable, Sequence

from gpuprov.capabilities.rdma import installers
from gpuprov.capabilities.rdma.erdma.fragment import Erdma
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import erdma as catalogue
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE: Path = ("rdma", "erdma")


_problem = report_under(*HERE)


def rules(host: HostSpec, block: Rdma) -> Iterable[Problem]:
    """Yield every problem of `rdma.erdma`."""
    options = block.erdma
    if block.fabric != "erdma":
        return
    yield from together(block)
    yield from _check_sources(options)
    yield from _check_parameters(options)
    yield from _check_neighbours(host, block)


def together(block: Rdma) -> Iterable[Problem]:
    """Yield what is missing or inconsistent, without which nothing can be set up."""
    options = block.erdma
    if options.compat_mode is None:
        fix = (
            "true: RoCE-like, for NCCL on GPU instances; false: iWARP, as ordinary instances are. The two do not "
            "talk to each other"
        )
        yield _problem("compat_mode", "is missing, and the driver's default depends on how it was built", fix)
    if not options.mtu:
        fix = (
            "jumbo where the instance has jumbo frames enabled (MTU 8500), else standard (1400): a wrong one "
            "corrupts NCCL's LL128"
        )
        yield _problem("mtu", "is missing", fix)
    yield from _check_stack(block, vendor=block.own_stack == "erdma-vendor")
    yield from installers.unchecked(_problem, options, "what Alibaba publishes")


def _check_stack(block: Rdma, *, vendor: bool) -> Iterable[Problem]:
    options = block.erdma
    if block.stack == "doca-ofed":
        fix = "stack: erdma-vendor; where OFED is installed already, its driver is built against it"
        yield Problem(path=("rdma", "stack"), message="rdma.stack is doca-ofed, which has no driver of eRDMA", fix=fix)
    elif not vendor:
        way = "stack: erdma-vendor, or leave it out"
        if options.compat_mode:
            yield _problem(
                "compat_mode",
                "is true, and rdma.stack inbox is the kernel's driver, which has no such mode",
                "stack: erdma-vendor, or compat_mode: false",
            )
        for key in ("installer", "url", "file", "sha256", "packages", "parameters"):
            if getattr(options, key):
                yield _problem(key, "goes with Alibaba's driver, and rdma.stack is inbox", way)


def _check_sources(options: Erdma) -> Iterable[Problem]:
    named = [key for key in ("installer", "url", "file", "packages") if getattr(options, key)]
    if len(named) > 1:
        yield _problem(named[1], f"and {named[0]} both name the driver", "one of installer, url, file and packages")
    known, archive = catalogue.read_erdma_file(), "erdma_installer-VERSION.tar.gz"
    listed = ", ".join(installer.version for installer in known.installers)
    yield from installers.problems(_problem, options, known, archive=archive, by="Alibaba", listed=listed)


def _check_parameters(options: Erdma) -> Iterable[Problem]:
    for key, value in options.parameters.items():
        known = catalogue.get_parameter(key)
        is_bool = known.least is None
        if is_bool != isinstance(value, bool):
            kind = "true or false" if is_bool else f"a whole number from {known.least} to {known.most}"
            yield _problem(f"parameters.{key}", f"is {str(value).lower()}", f"allowed: {kind}")
        elif known.least is not None and known.most is not None and not known.least <= value <= known.most:
            yield _problem(
                f"parameters.{key}", f"is {value}", f"allowed: a whole number from {known.least} to {known.most}"
            )


def _check_neighbours(host: HostSpec, block: Rdma) -> Iterable[Problem]:
    if block.nccl.addr_family == "ipv6":
        message = "rdma.nccl.addr_family is ipv6, and an eRDMA interface has no IPv6 address"
        yield Problem(path=("rdma", "nccl", "addr_family"), message=message, fix="addr_family: ipv4")
    kernel = host.capabilities.get("kernel")
    if not isinstance(kernel, Kernel):
        return
    if options := kernel.module_options.get("erdma"):
        fix = "rdma.erdma.compat_mode and rdma.erdma.parameters"
        message = f"kernel.module_options.erdma sets {', '.join(options)}, which rdma.erdma does in a file of its own"
        yield Problem(path=("kernel", "module_options", "erdma"), message=message, fix=fix)
    if block.erdma.compat_mode and "rdma_rxe" in kernel.modules_load:
        port = catalogue.read_erdma_file().ports.udp
        message = f"kernel.modules_load has rdma_rxe, which binds UDP {port}, as eRDMA's compat mode does"
        yield Problem(path=("kernel", "modules_load"), message=message, fix="take rdma_rxe out, or compat_mode: false")
    blacklisted = [name for name in ("erdma", "ib_uverbs", "ib_core") if name in kernel.blacklist]
    if blacklisted:
        message = f"kernel.blacklist has {', '.join(blacklisted)}, which eRDMA needs"
        yield Problem(path=("kernel", "blacklist"), message=message, fix="take it out, or rdma: false")


def fleet_rules(hosts: Sequence[HostSpec]) -> Iterable[tuple[str, Problem]]:
    """Yield hosts whose mode differs: eRDMA hosts in compat mode and those in iWARP mode cannot talk to each other."""
    blocks = [(host.name, block) for host in hosts if isinstance(block := host.capabilities.get("rdma"), Rdma)]
    instances = [(name, block.erdma) for name, block in blocks if block.fabric == "erdma"]
    modes = {mode: [name for name, erdma in instances if erdma.compat_mode is mode] for mode in (True, False)}
    if modes[True] and modes[False]:
        few = min((True, False), key=lambda mode: len(modes[mode]))
        other = modes[not few]
        words = f"is {str(few).lower()} on {_shorten(modes[few])}, and {str(not few).lower()} on {_shorten(other)}"
        for name in modes[few]:
            message = f"{words}: they cannot talk to each other"
            yield name, _problem("compat_mode", message, "one mode for all; or an inventory for each fabric")
    frames = {mtu: [name for name, erdma in instances if erdma.mtu == mtu] for mtu in ("jumbo", "standard")}
    if frames["jumbo"] and frames["standard"]:
        for name in frames["standard"]:
            message = f"is standard on {_shorten(frames['standard'])}, and jumbo on {_shorten(frames['jumbo'])}"
            fix = "jumbo frames are of use between instances that both have them"
            yield name, _problem("mtu", message, fix, warning=True)


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
