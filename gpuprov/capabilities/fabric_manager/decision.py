"""Decision which packages follow the driver on a host, and which its NVSwitches need as well, made once for all
callers."""

from typing import Any

import msgspec

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.fabric_manager.fragment import (
    DRIVER_PROBES,
    HARDWARE_PROBES,
    FabricManager,
    driver_version,
    generation,
    rules,
)
from gpuprov.capabilities.fabric_manager.tray import of_tray
from gpuprov.catalog import cuda
from gpuprov.catalog import fabric as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import fabric
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.family import family
from gpuprov.facts.probes.software.packages import INDEX, PACKAGES
from gpuprov.rules import followers, resolve

Ctx = Context[FabricManager]
PROBES = (*(*HARDWARE_PROBES, *DRIVER_PROBES, fabric.PACKAGES, INDEX, fabric.SUBNET_INDEX), *package_sources.COMING)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`packages`: exact versions by name of the packages that follow the driver, Fabric Manager's or nvidia-imex's
    first; none if they come with the driver's set. `moves`: that first package is not yet in this version. `replaced`:
    packages that they replace. `subnet`: packages that NVSwitches of generation 4 need and the host lacks. `problem`:
    why there is nothing to install; `source`: the package source that is still to come, which may have the packages."""

    packages: dict[str, str] = {}
    moves: bool = False
    replaced: tuple[str, ...] = ()
    subnet: tuple[str, ...] = ()
    problem: str = ""
    fix: str = ""
    source: str = ""


def what(block: FabricManager) -> str:
    """Return its name in messages."""
    return "nvidia-imex" if of_tray(block) else "Fabric Manager"


def installed(facts: Facts) -> dict[str, str]:
    """Return versions by name: of the driver's packages, and of those that follow it."""
    present = {**facts.get(PACKAGES), **facts.get(fabric.PACKAGES)}
    return {name: package.version for name, package in present.items()}


def decide(ctx: Ctx) -> Decision:
    """Return the packages that follow the installed driver. If nvidia_driver is to bring another driver in this run,
    because the spec asks for it or because there is no Fabric Manager for this one, all come in its transaction: a
    different version is never installed beside a driver."""
    part = "imex" if of_tray(ctx.fragment) else "fabric-manager"
    rules(ctx.facts, part)  # raises ProbeFailed where no packages are known
    subnet = lacking_subnet(ctx)
    driver_block, driver = ctx.host.capabilities.get("nvidia_driver"), driver_version(ctx.facts)
    comes = bool(driver_block) and (ctx.run is None or "nvidia_driver" in ctx.run)
    if subnet.problem:
        url = package_sources.coming(driver_block, ctx.facts) if comes else ""
        return msgspec.structs.replace(subnet, source=url)
    if comes and not fits(driver_block, driver):
        return subnet
    following = follow(ctx, driver)
    if following.problem and comes:
        return subnet
    return msgspec.structs.replace(following, subnet=subnet.subnet)


def fits(driver_block: Any, driver: str) -> bool:
    """Return whether the installed driver satisfies the block `nvidia_driver`."""
    return bool(driver) and resolve.satisfies(
        driver, driver_block.version, cuda.find_floor(driver_block.cuda) if driver_block.cuda else ""
    )


def follow(ctx: Ctx, driver: str) -> Decision:
    """Return the packages in exactly the version of the installed driver."""
    if not driver:
        problem = f"{ctx.host.name} has no NVIDIA driver, whose version {what(ctx.fragment)} must have"
        return Decision(problem=problem, fix="add nvidia_driver to the spec, or apply it too")
    release, present, index = ctx.facts.get(system.OS_RELEASE), installed(ctx.facts), ctx.facts.get(INDEX)
    functions = pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS))
    on_bus = [function.identifier for function in functions]
    blocks = {**ctx.host.capabilities, followers.FABRIC_MANAGER: ctx.fragment}
    beside = catalogue.list_beside(blocks, lambda: on_bus, release.id, release.version)
    answers = [resolve.follow(driver, known, index, present) for known, _ in beside]
    if refused := [answer for answer in answers if answer["problem"]]:
        problem = "; ".join(answer["problem"] for answer in refused)
        return Decision(problem=problem, fix=refused[0]["fix"])
    first = answers[0]
    return Decision(
        packages={answer["name"]: answer["version"] for answer in answers},
        moves=bool(first["replaced"]) or present.get(first["name"]) != first["version"],
        replaced=tuple(name for answer in answers for name in answer["replaced"]),
    )


def lacking_subnet(ctx: Ctx) -> Decision:
    """Return the packages that NVSwitches of generation 4 need besides Fabric Manager and the host lacks, with a
    problem if they are not offered."""
    switch_gen = generation(ctx.facts)
    if switch_gen < catalogue.BRIDGED_GENERATION:
        return Decision()
    names = catalogue.SUBNET_PACKAGES[family(ctx.facts.get(system.OS_RELEASE)) or "debian"]
    missing = tuple(name for name in names if name not in ctx.facts.get(fabric.PACKAGES))
    offered = ctx.facts.get(fabric.SUBNET_INDEX)
    fetched = offered or ctx.facts.get(INDEX)  # without lists, apply fetches them
    if nowhere := [name for name in missing if fetched and name not in offered]:
        lacks = f"the host's repositories have no {', '.join(nowhere)}"
        problem = f"NVSwitches of generation {switch_gen} need {', '.join(missing)}, and {lacks}"
        return Decision(
            problem=problem, fix="add NVIDIA's repository, or a mirror of it, to the host's package sources"
        )
    return Decision(subnet=missing)
