"""Can the host have these daemons: programs for its driver, features, GPUs. Decided before anything is changed."""

from __future__ import annotations

from gpuprov.capabilities import repositories_checks
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, ok, skip
from gpuprov.capabilities.mps.fragment import Mps, branch_now, branch_wanted, selects, wanted
from gpuprov.catalog import by_pci_id
from gpuprov.catalog import mps as catalogue
from gpuprov.probe import mps, nvidia, pci, system
from gpuprov.probe.family import family
from gpuprov.shared import resolve

Ctx = Context[Mps]
DRIVER = (nvidia.LIBRARIES, nvidia.DRIVER)


def package(ctx: Ctx) -> tuple[str, str]:
    """The package, and its version, that brings the programs in the installed driver's version; empty if none does."""
    version = ctx.facts.get(nvidia.LIBRARIES).get("libcuda", "") or ctx.facts.get(nvidia.DRIVER).version
    index = ctx.facts.get(mps.INDEX)
    kind = family(ctx.facts.get(system.OS_RELEASE))
    for name in catalogue.program_packages(kind or "debian", branch_now(ctx.facts)):
        for offered in index.get(name, []):
            if version and resolve.upstream(offered) == version:
                return name, offered
    return "", ""


@check(
    "mps.programs",
    *(mps.MPS, mps.INDEX, *DRIVER, system.OS_RELEASE, *repositories_checks.COMING),
    moment="preflight",
    evidence=f"command -v {catalogue.CONTROL}",
)
def programs(ctx: Ctx) -> Outcome:
    """The control program is there, or comes with the driver, or the repositories have it in the driver's version."""
    expected = catalogue.CONTROL
    if ctx.facts.get(mps.MPS).program or ctx.fragment.scope == "none":
        return ok("nothing to install")
    if "nvidia_driver" in ctx.host.capabilities:
        return ok("it comes with nvidia_driver", expected)
    name, version = package(ctx)
    if name:
        change = Change(kind="package", name=name, after=version)
        return Outcome(status="pass", expected=expected, found=f"{name} {version}", changes=(change,), version=version)
    if not branch_now(ctx.facts):
        return fail(expected, "no NVIDIA driver", "add nvidia_driver to the spec, or install a driver first")
    names = " or ".join(
        catalogue.program_packages(family(ctx.facts.get(system.OS_RELEASE)) or "debian", branch_now(ctx.facts))
    )
    told = f"the repositories have no {names} in the driver's version"
    return fail(expected, told, "the package source that the driver came from, or nvidia_driver in the spec")


@check("mps.features", *DRIVER, pci.NVIDIA_FUNCTIONS, moment="preflight", evidence="cat /proc/driver/nvidia/version")
def features(ctx: Ctx) -> Outcome:
    """The driver, as it is or as the spec wants it, and the GPUs have the protocol and the partitions that are asked for."""
    branch = branch_wanted(ctx.host, ctx.facts)
    models = [by_pci_id(gpu.identifier) for gpu in pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS))]
    asked: list[tuple[catalogue.Feature, str, bool]] = [
        ("v3", "protocol v3", ctx.fragment.protocol == "v3"),
        ("static_partitions", "static_partitions", bool(ctx.fragment.static_partitions)),
    ]
    for feature, shown, wants in asked:
        lacking = [why for model in models or [None] if wants and (why := catalogue.lacks(feature, branch, model))]
        if lacking:
            return fail(shown, lacking[0], "leave it out, or take a newer nvidia_driver.version")
    return ok(f"driver branch {branch}" if branch else "the driver that nvidia_driver installs")


@check("mps.gpus", mps.MPS, moment="preflight", evidence="nvidia-smi -L")
def devices(ctx: Ctx) -> Outcome:
    """Every GPU that is named, by limits too, is there, in one group, and in MIG mode only where the daemons are for MIG devices."""
    state = ctx.facts.get(mps.MPS)
    if not state.gpus:
        return skip(f"judged when a driver is there: {state.complaint or 'nvidia-smi lists no GPU'}")
    if "mig" in ctx.host.capabilities:
        return skip("judged when mig has been applied, which comes before")
    found, problem = wanted(ctx.fragment, state)
    if problem:
        hint = (
            "correct mps.groups; gpuprov export shows what there is"
            if ctx.fragment.groups
            else "scope: mig, or mig.mode: disabled"
        )
        return fail("a daemon for each", problem, hint)
    limits = [key for key in ctx.fragment.pinned_memory_limit if key != "all"]
    strange = [key for key in limits if not any(selects(key, gpu) for gpu in state.gpus)]
    if strange and found:
        hint = "correct mps.pinned_memory_limit; nvidia-smi -L shows what there is"
        return fail("a GPU for each memory limit", f"no GPU is {' or '.join(strange)}", hint)
    return ok(f"{len(found)} daemons")


CHECKS = (programs, features, devices)
