"""Checks that the host supports these daemons: programs for its driver, features, GPUs, made before anything is
changed."""

from __future__ import annotations

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import move_packages
from gpuprov.capabilities.driver import find_target_branch
from gpuprov.capabilities.mps.decision import DRIVER, PROBES, decide
from gpuprov.capabilities.mps.fragment import Mps, list_daemons, listed, selects
from gpuprov.catalog import find_by_pci_id
from gpuprov.catalog import mps as catalogue
from gpuprov.core.safe_parse import is_whole
from gpuprov.core.sanitize import counted
from gpuprov.facts.probes.gpus import mps
from gpuprov.facts.probes.host import pci

Ctx = Context[Mps]


@check(
    "mps.programs",
    *(*PROBES, *package_sources.COMING),
    moment="preflight",
    evidence=f"command -v {catalogue.CONTROL}",
)
def programs(ctx: Ctx) -> Outcome:
    """The control program is installed, or comes with the driver, or the repositories have it in the driver's
    version."""
    decision = decide(ctx)
    if decision.problem:
        return fail(catalogue.CONTROL, decision.problem, decision.fix)
    if decision.why:
        return ok(decision.why, catalogue.CONTROL)
    return Outcome(
        status="pass",
        expected=catalogue.CONTROL,
        found=f"{decision.package} {decision.version}",
        changes=tuple(move_packages({decision.package: decision.version})),
        version=decision.version,
    )


@check("mps.user", mps.USER, moment="preflight")
def user(ctx: Ctx) -> Outcome:
    """The host has the user whom the daemons should serve."""
    name = ctx.fragment.user
    if not name or is_whole(name):
        return not_asked("no user by name in the spec")
    if ctx.facts.get(mps.USER).get(name) is None:
        return fail(
            f"a user {name}", f"{ctx.host.name} has no user {name}", "create the user first, or correct mps.user"
        )
    return ok(f"{name}: uid {ctx.facts.get(mps.USER)[name]}")


@check("mps.features", *DRIVER, pci.NVIDIA_FUNCTIONS, moment="preflight", evidence="cat /proc/driver/nvidia/version")
def features(ctx: Ctx) -> Outcome:
    """The driver, as installed or as the spec wants it, and the GPUs support the requested protocol and partitions."""
    branch = find_target_branch(ctx.host, ctx.facts)
    models = [find_by_pci_id(gpu.identifier) for gpu in pci.gpus(ctx.facts.get(pci.NVIDIA_FUNCTIONS))]
    requests: list[tuple[catalogue.Feature, str, bool]] = [
        ("v3", "protocol v3", ctx.fragment.protocol == "v3"),
        ("static_partitions", "static_partitions", bool(ctx.fragment.static_partitions)),
        ("thread_percentage", "active_thread_percentage", ctx.fragment.active_thread_percentage != 100),
        ("memory_limit", "pinned_memory_limit", bool(ctx.fragment.pinned_memory_limit)),
    ]
    for feature, shown, wants in requests:
        lacking = [
            why
            for model in models or [None]
            if wants and (why := catalogue.explain_missing_feature(feature, branch, model))
        ]
        if lacking:
            return fail(shown, lacking[0], "leave it out, or take a newer nvidia_driver.version")
    return ok(f"driver branch {branch}" if branch else "the driver that nvidia_driver installs")


@check("mps.gpus", mps.MPS, moment="preflight", evidence="nvidia-smi -L")
def devices(ctx: Ctx) -> Outcome:
    """Every GPU that the spec names, in limits too, is present, in one group, and in MIG mode only if the daemons are
    for MIG devices."""
    state = ctx.facts.get(mps.MPS)
    if not state.gpus:
        return skip(f"judged once a driver is installed: {state.complaint or 'nvidia-smi lists no GPU'}")
    if ctx.applies("mig"):
        return skip("judged once mig, which comes first, is applied")
    targets, problem = list_daemons(ctx.fragment, state)
    if problem:
        fix = (
            "correct mps.groups; gpuprov export shows what there is"
            if ctx.fragment.groups
            else "scope: mig, or mig.mode: disabled"
        )
        return fail("a daemon for each", problem, fix)
    limits = [key for key in ctx.fragment.pinned_memory_limit if key != "all"]
    strange = [key for key in limits if not any(selects(key, gpu) for gpu in state.gpus)]
    if strange and targets:
        fix = "correct mps.pinned_memory_limit; nvidia-smi -L shows what there is"
        return fail("a GPU for each memory limit", f"no GPU is {' or '.join(strange)}; there are: {listed(state)}", fix)
    return ok(counted(len(targets), "daemon"))


CHECKS = (programs, user, features, devices)
