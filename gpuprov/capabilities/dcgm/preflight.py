"""Checks that DCGM can be installed: a driver that it works with, and one version of all its packages, made before
anything is changed."""

from collections.abc import Iterator

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import move_packages
from gpuprov.capabilities.dcgm.decision import PROBES, decided
from gpuprov.capabilities.dcgm.fragment import DRIVER_PROBES, Dcgm, list_versions
from gpuprov.capabilities.driver import find_target_branch
from gpuprov.catalog import dcgm as catalogue
from gpuprov.facts.probes.gpus import dcgm

Ctx = Context[Dcgm]


def clashes(block: Dcgm) -> Iterator[tuple[str, str, str]]:
    """Yield conflicts within the block: the field, the reason, the fix."""
    if block.version.partition(".")[0] == "3":
        for field, given in (("exporter", block.exporter), ("multinode", block.multinode)):
            if given:
                yield field, f"dcgm.{field}: there is none for DCGM 3", f'version: "4", or {field}: false'
    if block.exporter and block.listen.startswith("/"):
        message = "dcgm.exporter reaches the host engine by TCP only, and dcgm.listen is a socket"
        yield "listen", message, f"listen: {catalogue.LISTEN}, or exporter: false"


def misfit(version: str, cuda: str, branch: int) -> tuple[tuple[str, str], str, str]:
    """Return why a DCGM of this version and build cannot work with a driver of this branch: the field that is wrong,
    the reason, the fix; the last two are empty if it can."""
    if branch and branch < catalogue.MIN_BRANCH:
        message = f"DCGM does not work with driver branch {branch}"
        return (
            ("nvidia_driver", "version"),
            message,
            f'version: "{catalogue.MIN_BRANCH}" or newer; gpuprov catalog drivers',
        )
    major = "" if cuda == "auto" else cuda
    if major and branch and branch < catalogue.CUDA[major]:
        fix = f"cuda: auto, or a driver of branch {catalogue.CUDA[major]} or newer"
        return ("dcgm", "cuda"), f"the build for CUDA {major} does not work with driver branch {branch}", fix
    user_mode = major or (catalogue.find_cuda_major(branch) if branch else "")
    if version.partition(".")[0] == "3" and user_mode and int(user_mode) > catalogue.LAST_CUDA_OF_3:
        message = f"DCGM 3 does not work with CUDA {user_mode}" + (f" (driver branch {branch})" if branch else "")
        fix = f'DCGM 3 knows CUDA up to {catalogue.LAST_CUDA_OF_3} ("Detected unsupported Cuda version"): version: "4"'
        return ("dcgm", "version"), message, fix
    return ("dcgm", "version"), "", ""


@check("dcgm.together", moment="preflight", evidence="gpuprov check")
def together(ctx: Ctx) -> Outcome:
    """The settings of the block are consistent. `gpuprov check` proves this for an inventory; a play's variables may
    have changed since."""
    for field, message, fix in clashes(ctx.fragment):
        return fail(f"another dcgm.{field}", message, fix)
    return ok("DCGM's settings are consistent")


@check("dcgm.driver", *DRIVER_PROBES, moment="preflight", evidence="nvidia-smi; cat /proc/driver/nvidia/version")
def driver(ctx: Ctx) -> Outcome:
    """This DCGM works with the driver, as installed or as the spec wants it."""
    branch = find_target_branch(ctx.host, ctx.facts)
    _, problem, fix = misfit(ctx.fragment.version, ctx.fragment.cuda, branch)
    if problem:
        return fail(f"a driver that DCGM {ctx.fragment.version} works with", problem, fix)
    if not branch and "nvidia_driver" not in ctx.host.capabilities:
        fix = "add nvidia_driver to the spec, or install a driver first"
        return fail(f"a driver of branch {catalogue.MIN_BRANCH} or newer", "no NVIDIA driver", fix)
    return ok(f"branch {branch}" if branch else "the driver that nvidia_driver installs")


@check(
    "dcgm.resolvable",
    *PROBES,
    moment="preflight",
    evidence="apt-cache madison datacenter-gpu-manager-4-core; dnf -C repoquery --showduplicates "
    "'datacenter-gpu-manager*'; zypper --no-refresh search -s 'datacenter-gpu-manager*'",
)
def resolvable(ctx: Ctx) -> Outcome:
    """The host's repositories have all of DCGM's packages in one version, which the spec asks for, and an exporter for
    it."""
    decision, present = decided(ctx), list_versions(ctx.facts)
    expected = f"DCGM {ctx.fragment.version}"
    if decision.source:
        return package_sources.later(expected, decision.source)
    if decision.later:
        return ok(decision.later, expected)
    if decision.problem:
        return fail(expected, decision.problem, decision.fix)
    changes = move_packages(decision.packages, present, decision.replaced)
    summary = f"{decision.version}" + (
        f", build for CUDA {' and '.join(decision.cuda)}" if decision.line == "4" else ""
    )
    return Outcome(status="pass", expected=expected, found=summary, changes=tuple(changes), version=decision.version)


@check("dcgm.counters", dcgm.COUNTERS, fields=("exporter_counters",), moment="preflight")
def counters(ctx: Ctx) -> Outcome:
    """The exporter's configured file of counters is on the host; its package brings the default one."""
    path = ctx.fragment.exporter_counters
    if not ctx.fragment.exporter or path == catalogue.COUNTERS:
        return not_asked("the spec has no exporter with the site's own counters")
    exists = ctx.facts.get(dcgm.COUNTERS).get(path)
    if exists is None:
        return skip(f"{path} was not looked for")
    if not exists:
        fix = f"put it there first, or leave it out and take {catalogue.COUNTERS}"
        return fail(path, f"dcgm.exporter_counters: {path} does not exist on {ctx.host.name}", fix)
    return ok(path)


CHECKS = (together, driver, resolvable, counters)
