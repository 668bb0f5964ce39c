"""Checks that the toolkits can be installed without a driver, and that the driver runs them, made before anything is
changed."""

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context, Outcome, check, fail, ok, skip
from gpuprov.capabilities.compared import move_packages
from gpuprov.capabilities.cuda_toolkit.decision import Decision, decide, space_needed
from gpuprov.capabilities.cuda_toolkit.fragment import CudaToolkit
from gpuprov.capabilities.cuda_toolkit.host import (
    BASE,
    choose_driver,
    find_basis,
    find_family,
    list_versions,
    suggest_driver,
)
from gpuprov.catalog import cuda
from gpuprov.catalog.cuda import packages as catalogue
from gpuprov.facts.probes.driver.cuda_toolkit import INDEX, PACKAGES, TOOLKITS
from gpuprov.facts.probes.host import family, system
from gpuprov.rules import resolve
from gpuprov.spec.model import HostSpec

Ctx = Context[CudaToolkit]
RESOLVING = (*BASE, INDEX, *package_sources.COMING)


def coming(ctx: Ctx, decision: Decision) -> str:
    """Return the URL of the package source that nvidia_driver adds, if it may contain everything that is missing; empty
    otherwise."""
    if not decision.problem or ctx.facts.get(INDEX):
        return ""
    return package_sources.coming(ctx.host.capabilities.get("nvidia_driver"), ctx.facts)


@check(
    "cuda_toolkit.resolvable",
    *RESOLVING,
    fields=("versions", "parts", "cudnn", "nccl", "only"),
    moment="preflight",
    evidence="apt-cache search '^cuda-toolkit-[0-9]'; dnf -C repoquery --showduplicates 'cuda-toolkit-[0-9]*'; "
    "zypper --no-refresh search -s 'cuda-toolkit-*'",
)
def resolvable(ctx: Ctx) -> Outcome:
    """The host's repositories have every toolkit, cuDNN and NCCL that the spec asks for."""
    block, have = ctx.fragment, list_versions(ctx.facts)
    expected = f"{block.parts} of {', '.join(block.versions) or 'any toolkit'}"
    if find_family(ctx.facts) == "suse":
        message = (
            f"which packages a release on {ctx.facts.get(system.OS_RELEASE).name} needs is not read from zypper yet"
        )
        names = " ".join(f"cuda-toolkit-{version.replace('.', '-')}" for version in block.versions) or "cuda-toolkit"
        return fail(expected, message, f"zypper install {names} by hand, and cuda_toolkit out of the spec")
    decision = decide(block, find_basis(ctx.host, ctx.facts))
    if url := coming(ctx, decision):
        return package_sources.later(f"CUDA toolkit: {expected}", url)
    if decision.problem and ctx.facts.get(INDEX).busy:
        message = "another package manager is at work on the host, and its package lists cannot be read"
        return fail(expected, message, "wait until it has ended, then do it again")
    if decision.problem:
        return fail(expected, decision.problem, decision.fix)
    changes = move_packages(decision.packages, have, decision.remove)
    message = ", ".join(f"{name} {version}" for name, version in decision.packages.items())
    shown = ", ".join(resolve.upstream(version) for version in decision.releases.values())
    return Outcome(status="pass", expected=expected, found=message, changes=tuple(changes), version=shown)


@check(
    "cuda_toolkit.driver",
    *(*BASE, INDEX),
    fields=("versions",),
    moment="preflight",
    evidence="nvidia-smi; cat /proc/driver/nvidia/version",
)
def driver(ctx: Ctx) -> Outcome:
    """The driver that the host has, or is to have, runs every toolkit."""
    version = choose_driver(ctx.host, ctx.facts)
    if not version:
        return skip("no driver is installed, and the spec names none: programs can be built here, not run")
    decision = decide(ctx.fragment, find_basis(ctx.host, ctx.facts))
    return judged(ctx.host, version, list(decision.releases) or list(ctx.fragment.versions))


def judged(host: HostSpec, driver: str, releases: list[str]) -> Outcome:
    """Return the outcome of whether a driver runs all these toolkits."""
    for release in releases:
        support = cuda.check_support(driver, release)
        if support.runs is False:
            older = cuda.find_max_cuda(catalogue.take_major(driver))
            fix = f"{suggest_driver(host, release, support.floor)}, or an older toolkit"
            fix += f": branch {catalogue.take_major(driver)} is of CUDA {older}" if older else ""
            return fail(f"driver {support.floor} or newer for CUDA {release}", f"driver {driver}", fix)
        if support.runs is None:
            return skip(
                f"driver {driver}: its release decides whether it runs CUDA {release}, which needs {support.floor}"
            )
    return ok(f"driver {driver} runs {', '.join(releases)}")


@check(
    "cuda_toolkit.metapackages",
    *(PACKAGES, *BASE),
    fields=("only",),
    moment="preflight",
    evidence="dpkg -l cuda 'cuda-[0-9]*' nvidia-cuda-toolkit; rpm -qa 'cuda' 'cuda-[0-9]*'",
)
def metapackages(ctx: Ctx) -> Outcome:
    """No metapackage is installed that moves the driver or the toolkit at an upgrade, and no toolkit of the
    distribution's own."""
    known, facts = ctx.facts.get(PACKAGES), catalogue.read_toolkits_file()
    remove = family.WORDS[find_family(ctx.facts)].remove
    foreign = {name: purpose for name in known if (purpose := catalogue.find_purpose(facts.foreign, name))}
    if foreign:
        message = "; ".join(f"{name} {what}" for name, what in sorted(foreign.items()))
        return fail(
            "NVIDIA's toolkits only",
            message,
            f"{remove} {' '.join(sorted(foreign))}: its nvcc is found beside the default's",
        )
    purposes = {name: purpose for name in known if (purpose := catalogue.find_purpose(facts.metapackages, name))}
    if purposes and not ctx.fragment.only:
        message = "; ".join(f"{name} {what}" for name, what in sorted(purposes.items()))
        fix = f"{remove} {' '.join(sorted(purposes))} (removes the metapackage alone), or cuda_toolkit: {{only: true}}"
        return fail("toolkits by their own packages", message, fix)
    return ok(f"removed by apply: {' '.join(sorted(purposes))}" if purposes else "no NVIDIA metapackage")


# The fix for what is in the place of the alternatives' link, by its kind; an apply leaves it.
IN_THE_WAY = {
    "directory": f"move it away: mv {catalogue.LINK} {catalogue.LINK}.old, and look for a toolkit of a runfile with "
    "ls /usr/local",
    "link": f"rm {catalogue.LINK}",
}


@check(
    "cuda_toolkit.place",
    TOOLKITS,
    fields=("default",),
    moment="preflight",
    evidence="ls -ld /usr/local/cuda /etc/alternatives/cuda",
)
def place(ctx: Ctx) -> Outcome:
    """/usr/local/cuda is free, or a link of the alternatives: no file or link made by hand is in the way."""
    state = ctx.facts.get(TOOLKITS)
    if state.by in IN_THE_WAY:
        kind_of = "a directory" if state.by == "directory" else f"a link by hand to {state.link}"
        return fail("a link of the alternatives, or nothing", f"{catalogue.LINK} is {kind_of}", IN_THE_WAY[state.by])
    return ok(f"{catalogue.LINK} is {'a link of the alternatives' if state.by else 'free'}")


@check(
    "cuda_toolkit.space",
    *(*BASE, INDEX, TOOLKITS),
    fields=("versions", "parts"),
    moment="preflight",
    evidence="df -h /usr/local /var",
)
def space(ctx: Ctx) -> Outcome:
    """There is room for packages that are not yet installed: unpacked under /usr, and as packages under /var."""
    known = find_basis(ctx.host, ctx.facts)
    needs = space_needed(decide(ctx.fragment, known), ctx.fragment.parts, known)
    free = ctx.facts.get(TOOLKITS).space
    expected = f"{needs['installed']} MiB in /usr/local, {needs['archive']} MiB in /var"
    for folder, key in (("/usr/local", "installed"), ("/var", "archive")):
        if free.get(folder, 0) < needs[key]:
            fix = f"make room in {folder}; or parts: minimal-build or libraries, or fewer versions"
            return fail(expected, f"{free.get(folder, 0)} MiB free in {folder}", fix)
    return ok(f"{free.get('/usr/local')} MiB free in /usr/local, {free.get('/var')} MiB in /var", expected)


CHECKS = (resolvable, driver, metapackages, place, space)
