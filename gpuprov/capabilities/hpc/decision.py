"""Decision whose Open MPI and UCX a host should have, and in which versions."""

import msgspec

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.hpc.fragment import Hpc
from gpuprov.catalog import hpc as catalogue
from gpuprov.catalog.hpc import Origin
from gpuprov.catalog.rdma import ofed as ofed_catalogue
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.rdma import ofed
from gpuprov.facts.probes.software import hpc as probe

Ctx = Context[Hpc]
BASE = (system.OS_RELEASE, probe.PACKAGES, ofed.PACKAGES)
UNKNOWN = "names of Debian, Ubuntu, EL and their kin are known: hpc: {mpi: hpcx}, or take hpc out of the spec"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`install`: versions by package. `missing`: packages that no package source has in step. `comes`: they come with
    doca-ofed, which rdma installs first."""

    install: dict[str, str] = {}
    missing: tuple[str, ...] = ()
    comes: bool = False


def choose_origin(ctx: Ctx) -> Origin:
    """Return whose packages the host should have: by the spec's RDMA stack, or without one by whether OFED is there."""
    if rdma := ctx.host.capabilities.get("rdma"):
        return "doca-ofed" if getattr(rdma, "own_stack", "") == "doca-ofed" else "distribution"
    return "doca-ofed" if ofed_catalogue.PROFILE in ctx.facts.get(ofed.PACKAGES) else "distribution"


def read_level(facts: Facts) -> str:
    """Return the level of the installed OFED (`25.10`); empty without one."""
    kind, installed = family(facts.get(system.OS_RELEASE)) or "", facts.get(ofed.PACKAGES)
    kernels = [name for name in ofed_catalogue.list_packages(kind, kernel=True) if name in installed]
    return ofed.release(installed[kernels[0]].version).partition("-")[0] if kernels else ""


def list_names(ctx: Ctx) -> tuple[str, ...]:
    """Return the packages that the block asks for; none with HPC-X. Raises ProbeFailed where names are not known."""
    if ctx.fragment.mpi == "hpcx":
        return ()
    release = ctx.facts.get(system.OS_RELEASE)
    names = catalogue.list_packages(choose_origin(ctx), family(release) or "")
    if not names:
        raise ProbeFailed(f"hpc: no packages of Open MPI are known for {release.name or release.id}", UNKNOWN)
    return names


def is_in_step(version: str, origin: Origin, level: str) -> bool:
    """True if a package is of this origin, and of the installed OFED's level."""
    of_package = catalogue.parse_level(version)
    return not of_package if origin == "distribution" else bool(of_package) and level in ("", of_package)


def decide(ctx: Ctx) -> Decision:
    """Decide: a package of the right origin and level stays; for others the newest such version on offer."""
    origin, level = choose_origin(ctx), read_level(ctx.facts)
    have, offered = ctx.facts.get(probe.PACKAGES), ctx.facts.get(probe.INDEX)
    names = [name for name in list_names(ctx) if name not in have or not is_in_step(have[name].version, origin, level)]
    if names and origin == "doca-ofed" and not level and ctx.applies("rdma"):
        return Decision(comes=True)
    fitting = {name: [v for v in offered.get(name, ()) if is_in_step(v, origin, level)] for name in names}
    return Decision(
        install={name: versions[0] for name, versions in fitting.items() if versions},
        missing=tuple(name for name, versions in fitting.items() if not versions),
    )


def find_mixed(facts: Facts) -> str:
    """Return the packages of Open MPI and UCX where some are an OFED's and others the distribution's; empty where all
    are of one origin."""
    installed = facts.get(probe.PACKAGES)
    of_ofed = {name for name, package in installed.items() if catalogue.parse_level(package.version)}
    if not of_ofed or of_ofed == set(installed):
        return ""
    return ", ".join(f"{name} {package.version}" for name, package in installed.items())
