"""The library by which DCGM reads NVSwitches: installed, in the driver's version, and where the dynamic linker finds
it.

It belongs to Fabric Manager's capability rather than DCGM's: it follows the driver's version as Fabric Manager does, in
the one transaction of the driver's set, and which library it is follows from the board, which is known here. DCGM has a
version line of its own.
"""

from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok
from gpuprov.capabilities.compared import judge_package, move_packages
from gpuprov.capabilities.fabric_manager.fragment import (
    DRIVER_PROBES,
    FabricManager,
    driver_version,
    library_part,
    package,
    rules,
)
from gpuprov.facts.probes.gpus import dcgm, fabric
from gpuprov.facts.probes.host import pci, system
from gpuprov.facts.probes.host.family import words
from gpuprov.rules import resolve
from gpuprov.rules.followers import LIBRARIES

Ctx = Context[FabricManager]


@check(
    "fabric_manager.query_library",
    *(*DRIVER_PROBES, pci.NVIDIA_FUNCTIONS, fabric.PACKAGES, dcgm.LIBRARIES),
    fields=("query_library",),
    evidence="ldconfig -p | grep -E 'nscq|nvsdm'; dpkg -l 'libnvidia-nscq*' 'libnvsdm*'; rpm -qa 'libnvidia-nscq*' "
    "'libnvsdm*'; cat /proc/driver/nvidia/version",
)
def query_library(ctx: Ctx) -> Outcome:
    """The library by which DCGM reads this board's NVSwitches is installed in the driver's version, and the dynamic
    linker finds that very file. Without it DCGM works, and shows 0 NvSwitches."""
    part = library_part(ctx.host, ctx.facts)
    if not part:
        return not_asked(_explain_unfit(ctx))
    name, driver = LIBRARIES[part], driver_version(ctx.facts)
    expected = f"{name} {driver}"
    if not driver:
        return fail(f"{name} of the driver's version", "no driver is installed or loaded", "see nvidia_driver.packages")
    own_package = package(ctx.facts, part)
    if own_package is None:
        target = next(iter(resolve.fitting(rules(ctx.facts, part), driver)), name)
        message = f"no {name}: dcgmi discovery -l shows 0 NvSwitches"
        return fail(expected, message, "gpuprov apply", changes=move_packages({target: driver}))
    fix = 'gpuprov apply; gpuprov explain "NvSwitch version mismatch"'
    if wrong := judge_package(ctx.facts, own_package, driver, expected, fix):
        return wrong
    matches = [fact for fact in ctx.facts.get(dcgm.LIBRARIES) if fact.name == name]
    if not matches:
        return fail(
            expected,
            f"{own_package.name} is installed, and the dynamic linker finds no {name}.so",
            "ldconfig; ldconfig -p",
        )
    first = matches[0]
    if first.version and first.version != driver:
        owner = words(ctx.facts.get(system.OS_RELEASE)).owner
        fix = f"{owner} {first.path}; another installation's library lies before the package's"
        return fail(expected, f"{first.path} is of version {first.version}", fix)
    return ok(f"{own_package.name} {own_package.version}, {first.path}", expected)


def _explain_unfit(ctx: Ctx) -> str:
    if ctx.fragment.query_library == "never":
        return "query_library is never"
    if ctx.fragment.query_library == "auto" and "dcgm" not in ctx.host.capabilities:
        return "it is DCGM's, and dcgm is not in the spec"
    return "no library is known that reads the NVSwitches of this board"


CHECKS = (query_library,)
