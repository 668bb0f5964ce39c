"""Can DCGM be put there: a driver that it works with, and one version of all its packages. Decided before anything is changed."""

from __future__ import annotations

from gpuprov.capabilities import repositories_checks
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, ok
from gpuprov.capabilities.dcgm.fragment import (
    BASE_PROBES,
    DRIVER_PROBES,
    REPOSITORY,
    Dcgm,
    branch_wanted,
    decide,
    exporter,
    installed,
)
from gpuprov.catalog import dcgm as catalogue
from gpuprov.probe import dcgm

Ctx = Context[Dcgm]


def misfit(version: str, cuda: str, branch: int) -> tuple[tuple[str, str], str, str]:
    """Why a DCGM of this version and build cannot work with a driver of this branch: the field that is wrong, the reason, the way
    out; the last two are empty if it can."""
    if branch and branch < catalogue.MIN_BRANCH:
        told = f"DCGM does not work with driver branch {branch}"
        return (
            ("nvidia_driver", "version"),
            told,
            f'version: "{catalogue.MIN_BRANCH}" or newer; gpuprov catalog drivers',
        )
    major = "" if cuda == "auto" else cuda
    if major and branch and branch < catalogue.CUDA[major]:
        hint = f"cuda: auto, or a driver of branch {catalogue.CUDA[major]} or newer"
        return ("dcgm", "cuda"), f"the build for CUDA {major} does not work with driver branch {branch}", hint
    user_mode = major or (catalogue.cuda_of(branch) if branch else "")
    if version.partition(".")[0] == "3" and user_mode and int(user_mode) > catalogue.LAST_CUDA_OF_3:
        told = f"DCGM 3 does not work with CUDA {user_mode}" + (f" (driver branch {branch})" if branch else "")
        hint = f'DCGM 3 knows CUDA up to {catalogue.LAST_CUDA_OF_3} ("Detected unsupported Cuda version"): version: "4"'
        return ("dcgm", "version"), told, hint
    return ("dcgm", "version"), "", ""


@check("dcgm.driver", *DRIVER_PROBES, moment="preflight", evidence="nvidia-smi; cat /proc/driver/nvidia/version")
def driver(ctx: Ctx) -> Outcome:
    """The driver, as it is or as the spec wants it, is one that this DCGM works with."""
    branch = branch_wanted(ctx.host, ctx.facts)
    _, found, hint = misfit(ctx.fragment.version, ctx.fragment.cuda, branch)
    if found:
        return fail(f"a driver that DCGM {ctx.fragment.version} works with", found, hint)
    if not branch and "nvidia_driver" not in ctx.host.capabilities:
        hint = "add nvidia_driver to the spec, or install a driver first"
        return fail(f"a driver of branch {catalogue.MIN_BRANCH} or newer", "no NVIDIA driver", hint)
    return ok(f"branch {branch}" if branch else "the driver that nvidia_driver installs")


@check(
    "dcgm.resolvable",
    *(*BASE_PROBES, dcgm.INDEX, *repositories_checks.COMING),
    moment="preflight",
    evidence="apt-cache madison datacenter-gpu-manager-4-core",
)
def resolvable(ctx: Ctx) -> Outcome:
    """The host's repositories have all of DCGM's packages in one version, the one asked for, and an exporter for it."""
    branch, there = branch_wanted(ctx.host, ctx.facts), installed(ctx.facts)
    decision = decide(ctx.fragment, branch, ctx.facts)
    expected = f"DCGM {ctx.fragment.version}"
    if decision.problem and not branch and "nvidia_driver" in ctx.host.capabilities and ctx.fragment.cuda == "auto":
        return ok("resolved with the driver that nvidia_driver installs", expected)
    driver = ctx.host.capabilities.get("nvidia_driver")
    if decision.problem and not ctx.facts.get(dcgm.INDEX) and (url := repositories_checks.coming(driver, ctx.facts)):
        return repositories_checks.later(expected, url)
    if decision.problem:
        return fail(expected, decision.problem, decision.hint)
    packages = dict(decision.packages)
    if ctx.fragment.exporter:
        if not (chosen := exporter(ctx.fragment, decision.version, ctx.facts)):
            needed = catalogue.exporter_bound(decision.version) or catalogue.PAIRS[0][1]
            hint = (
                REPOSITORY
                if not ctx.facts.get(dcgm.INDEX).get(catalogue.EXPORTER)
                else "another dcgm.version, or exporter: false"
            )
            return fail(f"{catalogue.EXPORTER} {needed} or older", f"none for DCGM {decision.version}", hint)
        packages[catalogue.EXPORTER] = chosen
    changes = [Change(kind="package", name=name, before=there[name]) for name in decision.replaced]
    changes += [
        Change(kind="package", name=name, before=there.get(name, ""), after=version)
        for name, version in packages.items()
        if there.get(name) != version
    ]
    told = f"{decision.version}" + (f", build for CUDA {' and '.join(decision.cuda)}" if decision.line == "4" else "")
    return Outcome(status="pass", expected=expected, found=told, changes=tuple(changes), version=decision.version)


CHECKS = (driver, resolvable)
