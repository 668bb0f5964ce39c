"""Desired state of AWS's EFA: its installer, run once per archive and options."""

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.rdma import installers
from gpuprov.capabilities.rdma.efa.checks import options
from gpuprov.capabilities.rdma.efa.rules import installer_sha256
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.installers import Fetch
from gpuprov.catalog.rdma import efa as catalogue
from gpuprov.facts.probes.rdma.efa import EFA
from gpuprov.host_code import efa as onhost
from gpuprov.host_code.json_members import Json

Ctx = Context[Rdma]


def archive(digest: str) -> str:
    """Return the path of the installer on the host."""
    return f"{catalogue.CACHE}/{digest}.tar.gz"


def fetch(ctx: Ctx) -> Fetch | None:
    """Return the installer to fetch; None if it has already run with these options."""
    block, efa_block = ctx.fragment, ctx.fragment.efa
    digest = installer_sha256(block) if block.fabric == "efa" else ""
    if not digest or not onhost.explain_installation(
        ctx.facts.get(EFA).record, digest, onhost.build_options(options(block))
    ):
        return None
    url = installers.address(efa_block, catalogue.read_efa_file())
    return Fetch(
        of="rdma.efa",
        url=url,
        file="" if url else efa_block.file,
        path=archive(digest),
        sha256=digest,
        most=catalogue.MOST,
        fix="the right file, or the sha256 that sha256sum says of it, compared with what AWS publishes",
    )


def software(ctx: Ctx) -> dict[str, Json] | None:
    """Return the arguments of step efa; None if no installer is requested."""
    digest = installer_sha256(ctx.fragment) if ctx.fragment.fabric == "efa" else ""
    return (
        {"state": "installed", "archive": archive(digest), "sha256": digest, **options(ctx.fragment)}
        if digest
        else None
    )
