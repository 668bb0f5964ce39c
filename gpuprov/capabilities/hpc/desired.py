"""Desired state of the role: packages of Open MPI and UCX, HPC-X, its module, and the linker's way to NCCL's plugin."""

from collections.abc import Iterator

from gpuprov.capabilities.answers import HEADER, TRY_BY_HAND
from gpuprov.capabilities.base import Desired, Resources
from gpuprov.capabilities.hpc.decision import BASE, Ctx, choose_origin, decide
from gpuprov.capabilities.hpc.fragment import find_archive, needs_plugin
from gpuprov.catalog import hpc as catalogue
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.software import hpc as probe
from gpuprov.host_code import hpcx
from gpuprov.host_code.json_members import Json
from gpuprov.resources import Absent, File, Resource, role_values
from gpuprov.resources.packages import packages_of

MODULE = f"""#%Module1.0
{HEADER}conflict mpi
module load {catalogue.LINK}/modulefiles/hpcx
"""
MODULES = {kind: f"{folder}/mpi/hpcx" for kind, folder in catalogue.MODULES.items()}
SOURCE = "the distribution's own repositories, or those of rdma.ofed, in the level of the installed OFED"


def list_folders(ctx: Ctx) -> list[str]:
    """Return the folders in which the linker finds NCCL's plugin and its libraries; UCX's own only where no package
    has one, so that programs never meet two."""
    if not needs_plugin(ctx.host, ctx.fragment):
        return []
    folders = ["nccl_rdma_sharp_plugin/lib", "sharp/lib"]
    alone = choose_origin(ctx) == "distribution" and not {"ucx", "libucx0"} & ctx.facts.get(probe.PACKAGES).keys()
    return [f"{catalogue.LINK}/{folder}" for folder in folders + ["ucx/lib"] * alone]


def desired(ctx: Ctx) -> Iterator[Resource]:
    """Yield the module of HPC-X and the linker's folders, or their absence."""
    folders = list_folders(ctx)
    text = HEADER + "".join(f"{folder}\n" for folder in folders)
    yield File(catalogue.LINKER, text) if folders else Absent(catalogue.LINKER)
    kind = family(ctx.facts.get(system.OS_RELEASE)) or ""
    for name, path in MODULES.items():
        yield File(path, MODULE) if ctx.fragment.mpi == "hpcx" and name == kind else Absent(path)


def explain_hpcx(ctx: Ctx) -> str:
    """Return the reason why the archive is to be unpacked; empty if it is, or if the spec names none."""
    archive, state = find_archive(ctx.fragment), ctx.facts.get(probe.HPC)
    if archive is None:
        return ""
    return hpcx.explain_installation(state.link, state.mark, archive.folder, ctx.fragment.hpcx.sha256.lower())


def plan_hpcx(ctx: Ctx) -> dict[str, Json]:
    """Return the tasks that bring HPC-X; none if it is there."""
    source, archive = ctx.fragment.hpcx, find_archive(ctx.fragment)
    if archive is None or not explain_hpcx(ctx):
        return {}
    digest = source.sha256.lower()
    path = f"{catalogue.CACHE}/{digest}.tbz"
    url = source.url
    named = {"of": "hpc.hpcx", "url": url, "file": "" if url else source.file, "path": path, "sha256": digest}
    return {
        "fetch": {**named, "most": catalogue.MOST},
        "hpcx": {"archive": path, "sha256": digest, "folder": archive.folder},
    }


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values: the transaction, holds, files, and the tasks for HPC-X. Raises ProbeFailed for packages
    that no package source has."""
    decision, installed = decide(ctx), ctx.facts.get(probe.PACKAGES)
    if decision.missing:
        raise ProbeFailed(f"hpc: no package source of the host has {' '.join(decision.missing)} in step", SOURCE)
    tasks, state = plan_hpcx(ctx), ctx.facts.get(probe.HPC)
    due = bool(tasks or not state.plugins or state.lost) if needs_plugin(ctx.host, ctx.fragment) else state.conf
    held = [] if ctx.fragment.mpi == "hpcx" else [name for name in probe.NAMES if name in installed]
    return {
        "of": "Open MPI",
        "fix": TRY_BY_HAND,
        "install": [f"{name}={version}" for name, version in decision.install.items()],
        "held": {"hold": held if ctx.fragment.hold else [], "release": [] if ctx.fragment.hold else held},
        **role_values(desired(ctx), "files", "absent"),
        "tasks": {**tasks, "command": [{"argv": ["ldconfig"]}] if due else []},
    }


RESOURCES = Resources(
    desired,
    lambda _host, _block: (catalogue.LINKER, *MODULES.values()),
    (system.OS_RELEASE, *BASE[1:]),
    proves={"files": ("mpi",)},
)
DESIRED = Desired(
    (*BASE, probe.INDEX, probe.HPC), make, packages=lambda values: (packages_of(values, **values["held"]),)
)
