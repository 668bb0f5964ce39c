"""Desired state of the role: packages of the tools, and programs built from the archives that the spec names."""

from collections.abc import Iterator
from typing import Any

from gpuprov.capabilities.acceptance.checks import installed, sources
from gpuprov.capabilities.acceptance.fragment import Acceptance, Source
from gpuprov.capabilities.base import Context, Desired
from gpuprov.catalog import acceptance as catalogue
from gpuprov.facts.probes import acceptance, rdma
from gpuprov.facts.probes.acceptance import PACKAGES
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.host_code.json_members import Json

Ctx = Context[Acceptance]
# The script with which an earlier gpuprov built.
OLD = "/usr/local/lib/gpuprov/acceptance/build.sh"


def builds(ctx: Ctx) -> Iterator[dict[str, Json]]:
    """Yield what is not built yet, as steps take it: the source of its archive, and the folder to build it in."""
    built = ctx.facts.get(acceptance.TOOLS).built
    for name, folder in sources(ctx.fragment):
        if folder.rpartition("/")[2] in built:
            continue
        source: Source = getattr(ctx.fragment, name).source
        program = next(build.program for build in catalogue.read_acceptance_file().builds if build.key == name)
        yield {
            "name": name,
            "archive": f"{folder}.archive",
            "url": source.url,
            "file": source.file,
            "sha256": source.sha256,
            "folder": folder,
            "program": program,
            "mpi": name == "nccl" and ctx.fragment.nccl.across,
        }


def make(ctx: Ctx) -> dict[str, Json]:
    """Return the role's values. `install`: packages. `absent`: files that should not be there."""
    kin = family(ctx.facts.get(system.OS_RELEASE)) or "debian"
    present, building = ctx.facts.get(PACKAGES), list(builds(ctx))
    needed = list(catalogue.list_packages(installed(ctx), kin))
    needed += catalogue.build_packages((str(build["name"]) for build in building), kin)
    return {
        "of": "the acceptance tools",
        "fix": "perftest and rdma-core's tools are in every distribution; libnccl comes from NVIDIA's CUDA "
        "repository; or take the tests out of the spec",
        "install": [name for name in dict.fromkeys(needed) if name not in present],
        "absent": [OLD],
        "tasks": {
            "fetch": [
                {
                    "of": f"acceptance.{build['name']}.source",
                    **{key: build[key] for key in ("url", "file", "sha256")},
                    "path": build["archive"],
                }
                for build in building
            ],
            "tool_build": [
                {key: build[key] for key in ("name", "archive", "folder", "program", "mpi")} for build in building
            ],
        },
    }


DESIRED: Desired[Any] = Desired((acceptance.TOOLS, rdma.DEVICES, system.OS_RELEASE, PACKAGES), make)
