"""What the role brings about: packages of the tools, and what is built from the archives that the spec names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gpuprov.capabilities.acceptance.checks import installed, sources
from gpuprov.capabilities.acceptance.fragment import Acceptance, Source
from gpuprov.capabilities.base import Context, Desired
from gpuprov.catalog import acceptance as catalogue
from gpuprov.probe import acceptance, rdma
from gpuprov.probe.acceptance.build import PACKAGES
from gpuprov.probe.host import system
from gpuprov.probe.host.family import family
from gpuprov.spec.model import HostSpec

Ctx = Context[Acceptance]
PROGRAM = "/usr/local/lib/gpuprov/acceptance/build.sh"


def builds(ctx: Ctx) -> Iterator[dict[str, Any]]:
    """What is not built yet: its archive, what builds it, and what to do where that fails."""
    there = ctx.facts.get(acceptance.TOOLS).built
    for name, folder in sources(ctx.fragment):
        if folder.rpartition("/")[2] in there:
            continue
        source: Source = getattr(ctx.fragment, name).source
        program = next(one.program for one in catalogue.acceptance_file().builds if one.key == name)
        with_mpi = name == "nccl" and ctx.fragment.nccl.across
        yield {
            "name": name,
            "field": f"acceptance.{name}.source",
            "archive": f"{folder}.archive",
            "url": source.url,
            "file": source.file,
            "sha256": source.sha256,
            "argv": [PROGRAM, name, folder, program, *(["mpi"] if with_mpi else [])],
            "hint": f"see {folder}.log there; it needs a CUDA toolkit that fits the driver",
        }


def make(ctx: Ctx) -> dict[str, Any]:
    """`install`: packages. `builds`: what has to be built. `program`: the role's file that builds it, by its path on the host."""
    kin = family(ctx.facts.get(system.OS_RELEASE)) or "debian"
    there, building = ctx.facts.get(PACKAGES), list(builds(ctx))
    wanted = list(catalogue.packages(installed(ctx), kin))
    wanted += catalogue.build_packages((one["name"] for one in building), kin)
    return {
        "install": [name for name in dict.fromkeys(wanted) if name not in there],
        "builds": building,
        "program": {PROGRAM: "build.sh"},
    }


def facts(_spec: HostSpec) -> object:
    """Names of packages, and programs that builds end in."""
    known = catalogue.acceptance_file()
    return msgspec.to_builtins([known.tools, known.builds])


DESIRED: Desired[Any] = Desired((acceptance.TOOLS, rdma.DEVICES, system.OS_RELEASE, PACKAGES), make, facts=facts)
