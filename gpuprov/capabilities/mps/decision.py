"""Decision on the source of MPS's programs for a host, made once for preflight and for the role."""

from __future__ import annotations

import msgspec

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.driver import find_current_branch
from gpuprov.capabilities.mps.fragment import Mps
from gpuprov.catalog import mps as catalogue
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import mps
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.rules import resolve

Ctx = Context[Mps]
DRIVER = (nvidia.LIBRARIES, nvidia.DRIVER)
PROBES = (mps.MPS, mps.INDEX, *DRIVER, system.OS_RELEASE)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The package that brings the programs, and its version; empty if none is needed: `why`."""

    package: str = ""
    version: str = ""
    why: str = ""
    # Why there is none.
    problem: str = ""
    fix: str = ""

    @property
    def install(self) -> list[str]:
        """The package and version in the package manager's syntax."""
        return [f"{self.package}={self.version}"] if self.package else []


def decide(ctx: Ctx) -> Decision:
    """Decide: the control program is installed, or comes with the driver, or the repositories have it in the driver's
    version."""
    if ctx.facts.get(mps.MPS).program or ctx.fragment.scope == "none":
        return Decision(why="nothing to install")
    if "nvidia_driver" in ctx.host.capabilities:
        return Decision(why="it comes with nvidia_driver")
    branch = find_current_branch(ctx.facts)
    if not branch:
        return Decision(problem="no NVIDIA driver", fix="add nvidia_driver to the spec, or install a driver first")
    driver = ctx.facts.get(nvidia.LIBRARIES).get("libcuda", "") or ctx.facts.get(nvidia.DRIVER).version
    index = ctx.facts.get(mps.INDEX)
    names = catalogue.list_program_packages(family(ctx.facts.get(system.OS_RELEASE)) or "debian", branch)
    for name in names:
        for offered in index.get(name, []):
            if resolve.upstream(offered) == driver:
                return Decision(package=name, version=offered)
    return Decision(
        problem=f"the repositories have no {' or '.join(names)} in the driver's version, {driver}",
        fix="the package source that the driver came from, or nvidia_driver in the spec",
    )
