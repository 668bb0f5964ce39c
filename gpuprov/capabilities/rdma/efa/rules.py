"""Rules for `rdma.efa` that hold on any host, and values derived from the block."""

from collections.abc import Iterable

from gpuprov.capabilities.rdma import installers
from gpuprov.capabilities.rdma.efa.fragment import Efa
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.catalog.rdma import efa as catalogue
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem, report_under

_problem = report_under("rdma", "efa")
VERIFY = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-verify.html"


def vendor(block: Rdma) -> bool:
    """Return whether the spec asks for AWS's driver rather than the kernel's."""
    return block.own_stack == "efa-vendor"


def installer_sha256(block: Rdma) -> str:
    """Return the SHA-256 of the requested installer; empty if there is none."""
    return installers.digest(block.efa, catalogue.read_efa_file())


def rules(host: HostSpec, block: Rdma) -> Iterable[Problem]:
    """Yield every problem of `rdma.efa`."""
    options = block.efa
    if block.fabric != "efa":
        return
    if block.stack == "doca-ofed":
        message = "rdma.stack is doca-ofed, whose ib_core AWS's driver does not load with"
        yield Problem(path=("rdma", "stack"), message=message, fix="stack: efa-vendor")
    yield from _check_sources(options)
    if not vendor(block) and options.gpudirect:
        message = "is true, and rdma.stack inbox is the kernel's driver, which reaches GPU memory by DMA-BUF alone"
        yield _problem("gpudirect", message, "stack: efa-vendor, or gpudirect: false")
    yield from _check_neighbours(host, block)


def _check_sources(options: Efa) -> Iterable[Problem]:
    named = [key for key in ("installer", "url", "file") if getattr(options, key)]
    known = catalogue.read_efa_file()
    if len(named) > 1:
        yield _problem(named[1], f"and {named[0]} both name the installer", "one of installer, url and file")
    listed = (
        f"{', '.join(installer.version for installer in known.installers[:4])} and older, down to "
        f"{known.installers[-1].version}"
    )
    archive = "aws-efa-installer-VERSION.tar.gz"
    yield from installers.problems(_problem, options, known, archive=archive, by="AWS", listed=listed)
    yield from installers.unchecked(_problem, options, VERIFY)
    if options.mpi != "none" and not named:
        yield _problem(
            "mpi", "has no effect: it comes with the installer", "name installer, url or file; or leave it out"
        )


def _check_neighbours(host: HostSpec, block: Rdma) -> Iterable[Problem]:
    nccl = block.nccl
    if nccl.net_plugin == "none":
        message = "rdma.nccl.net_plugin is none, and NCCL uses EFA by a plugin alone"
        yield Problem(path=("rdma", "nccl", "net_plugin"), message=message, fix="leave it out")
    if nccl.topo_file:
        message = "rdma.nccl.topo_file overrules the topology that aws-ofi-nccl makes itself"
        yield Problem(path=("rdma", "nccl", "topo_file"), message=message, fix="leave it out", severity="warning")
    kernel = host.capabilities.get("kernel")
    if isinstance(kernel, Kernel) and (
        bad := [name for name in ("efa", "ib_uverbs", "ib_core") if name in kernel.blacklist]
    ):
        message = f"kernel.blacklist has {', '.join(bad)}, which EFA needs"
        yield Problem(path=("kernel", "blacklist"), message=message, fix="take it out, or rdma: false")
