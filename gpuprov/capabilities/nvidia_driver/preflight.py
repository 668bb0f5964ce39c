"""Checks that the driver can be installed, made before anything is changed."""

import re
from collections.abc import Iterable, Iterator

from gpuprov.capabilities import package_sources
from gpuprov.capabilities.base import Change, Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.driver import judge_holders
from gpuprov.capabilities.nvidia_driver.decision import TRANSACTION, decided, kernels, reload_reasons, seen, waits_for
from gpuprov.capabilities.nvidia_driver.fragment import (
    BASE_PROBES,
    Decision,
    NvidiaDriver,
    built_here,
    package_names,
    served,
    versions,
)
from gpuprov.capabilities.nvidia_driver.transaction import installed_set, installed_version, made_by_nvidia, transaction
from gpuprov.catalog import drivers, gpus
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.driver.driver_packages import PRECOMPILED
from gpuprov.facts.probes.driver.runfile import RUNFILE
from gpuprov.facts.probes.host import house, pci, system
from gpuprov.facts.probes.host.family import family, words
from gpuprov.facts.probes.kernel import modules
from gpuprov.facts.probes.software.packages import INDEX, LOCKING, NO_LOCK_PLUGIN, PACKAGES, Index
from gpuprov.facts.probes.software.prebuilt import SUFFIX
from gpuprov.rules import resolve
from gpuprov.spec.overrides import Room, free_space

Ctx = Context[NvidiaDriver]

# Packages, their unpacked files, and the objects of one module build: 535 on Debian 12, rounded up.
ROOM = Room(path="/var", mib=3000)

DECISION_PROBES = (*BASE_PROBES, INDEX, PRECOMPILED, modules.KERNELS, *package_sources.COMING[1:])


@check(
    "nvidia_driver.resolvable",
    *TRANSACTION,
    fields=("version", "kernel_modules", "cuda", "build"),
    moment="preflight",
    evidence=INDEX.evidence,
)
def resolvable(ctx: Ctx) -> Outcome:
    """One exact version exists for which the host's repositories have every package of the set."""
    index = ctx.facts.get(INDEX)
    decision = decided(ctx)
    expected = f"{ctx.fragment.version} ({decision.flavour})"
    names = package_names(ctx.fragment, ctx.facts)
    waits = waits_for(ctx, decision)
    if waits.startswith(("added http", "added file:")):
        return package_sources.later(f"driver {ctx.fragment.version}", waits.removeprefix("added "))
    if decision.problem and not resolve.kernel_versions(names.sets, seen(ctx.fragment, ctx.facts)):
        if index.busy:
            return skip(
                "another package manager is at work on the host: plan again when it has ended; apply waits for it"
            )
        if not index or names.modules["open"] != "nvidia":
            also = "" if names.modules["open"] == "nvidia" else ", enables non-free"
            return skip(f"the host's package lists have no driver yet: apply fetches them{also}, and resolves then")
    if decision.problem:
        fetch = words(ctx.facts.get(system.OS_RELEASE)).fetch
        message = f"{decision.problem}{ended(decision.problem, index)}"
        return fail(expected, message, decision.fix.replace("fetch the package lists", fetch))
    refused = refusals(ctx.facts, decision)
    if refused:
        return fail(expected, "; ".join(refused), "gpuprov catalog gpus MODEL says which branches know a GPU")
    moves = transaction(ctx, decision)
    if moves.unmovable:
        purge = words(ctx.facts.get(system.OS_RELEASE)).purge
        fix = f"{purge} {' '.join(moves.unmovable)}, then apply again; or another version"
        message = (
            f"{', '.join(moves.unmovable)} (installed, of the driver's source) is not offered in it, and "
            "would be left behind"
        )
        return fail(expected, message, fix)
    return Outcome(
        status="pass",
        expected=expected,
        found=f"{decision.version} ({decision.flavour}: {decision.reason})",
        changes=tuple(_list_changes(ctx, decision, names.extra)),
        version=decision.version,
        installed=installed_version(ctx.fragment, ctx.facts),
    )


def _list_changes(ctx: Ctx, decision: Decision, extra: Iterable[str]) -> Iterator[Change]:
    """Yield the packages that are removed, moved or installed for a decision, then those beside it."""
    installed, first = ctx.facts.get(PACKAGES), next(iter(decision.packages))
    for name in decision.replaced:
        yield Change(kind="package", name=name, before=installed[name].version, after="removed")
    moving = [] if decision.kept else installed_set(ctx.fragment, ctx.facts)
    for name, version in {**dict.fromkeys(moving, decision.packages[first]), **decision.packages}.items():
        before = installed[name].version if name in installed else ""
        if before != version and name not in decision.replaced:
            shown = name + SUFFIX if served(ctx.host, ctx.fragment) and name == first else name
            yield Change(kind="package", name=shown, before=before, after=version)
    for name in extra:
        if name not in installed:
            yield Change(kind="package", name=name, after="newest")


def ended(problem: str, index: Index) -> str:
    """Return what replaced a package that is reported as missing, although apt lists it."""
    name = next((name for name in index.moved if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", problem)), "")
    return f"; {name} is a transitional package there, for {index.moved[name]}" if name else ""


def refusals(facts: Facts, decision: Decision) -> list[str]:
    """Return why GPUs on the bus cannot run with the decided driver."""
    candidates = (gpus.find_by_pci_id(function.identifier) for function in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS)))
    models = {model.key: model for model in candidates if model}
    flavour: gpus.Flavour = "open" if decision.flavour == "open" else "proprietary"
    return [
        reason for model in models.values() if (reason := drivers.explain_refusal(model, decision.version, flavour))
    ]


@check(
    "nvidia_driver.leftovers",
    *(*TRANSACTION, house.LEFTOVERS),
    moment="preflight",
    evidence="ls /usr/bin/nvidia-uninstall /usr/bin/nvidia-installer; dpkg -l '*nvidia*' 'cuda*'; rpm -qa "
    "'*nvidia*' 'cuda*'",
)
def leftovers(ctx: Ctx) -> Outcome:
    """No other driver is in the way: a runfile installation, another repository's packages, a `cuda` metapackage."""
    programs = ctx.facts.get(house.LEFTOVERS)
    if programs:
        fix = f"remove it first: {programs[0]} --uninstall (or sh NVIDIA-Linux-*.run --uninstall)"
        return fail("packages only", f"a runfile installation: {' '.join(programs)}", fix)
    names = package_names(ctx.fragment, ctx.facts)
    # The set of another source that gpuprov knows leaves in the one transaction.
    leaving = resolve.of_another(names.others, versions(ctx.facts))
    foreign = [
        package
        for name, package in ctx.facts.get(PACKAGES).items()
        if name == package.name and names.foreign(name, package.source) and name not in leaving
    ]
    if foreign:
        listed = " ".join(f"{package.name}={package.version}" for package in foreign)
        purge = words(ctx.facts.get(system.OS_RELEASE)).purge
        fix = f"remove it first: {purge} {' '.join(package.name for package in foreign)}"
        return fail("the driver of one source only", f"packages that bring another driver: {listed}", fix)
    if theirs := made_by_nvidia(ctx, decided(ctx)):
        purge = words(ctx.facts.get(system.OS_RELEASE)).purge
        listed = " ".join(f"{row.name}={row.version}" for row in theirs)
        message = f"packages of the same names that {theirs[0].vendor} made: {listed}"
        fix = f"remove it first: {purge} {' '.join(row.name for row in theirs)}"
        return fail("the driver of one source only", message, fix)
    return ok("no other driver")


@check(
    "nvidia_driver.build_tools",
    *(*TRANSACTION, RUNFILE),
    fields=("build",),
    moment="preflight",
    evidence="ls /boot /lib/modules; apt-cache policy dkms; dnf info dkms; zypper info dkms",
)
def build_tools(ctx: Ctx) -> Outcome:
    """There is a kernel to install modules for, and DKMS and compilers are installed or offered, if they build them."""
    if not kernels(ctx):
        fix = "install a kernel, or, in a container, the headers package of the machine's kernel"
        return fail(
            "a kernel",
            "neither a kernel in /boot nor kernel headers in /lib/modules: there is nothing to build for",
            fix,
        )
    decision, names = decided(ctx), package_names(ctx.fragment, ctx.facts)
    if decision.problem:
        return skip("the version is not decided: nvidia_driver.resolvable says why")
    expected = f"modules for {' '.join(kernel.release for kernel in kernels(ctx))}"
    lacking = transaction(ctx, decision).lacking
    built = all(kernel.nvidia == decision.version for kernel in kernels(ctx))
    if lacking and not built:
        message = f"the driver's modules are built by {', '.join(lacking)}, and the host's repositories have none"
        return fail(expected, message, names.builds_from)
    return ok(expected)


@check(
    "nvidia_driver.holdable",
    *(LOCKING, system.OS_RELEASE),
    fields=("hold",),
    moment="preflight",
    evidence="cat /etc/dnf/dnf.conf /etc/dnf/plugins/versionlock.conf /etc/zypp/zypp.conf",
)
def holdable(ctx: Ctx) -> Outcome:
    """Held packages stay at their version: the package manager honours its locks."""
    complaint = ctx.facts.get(LOCKING)
    if not ctx.fragment.hold or ctx.fragment.source == "runfile":
        return not_asked("nothing is held")
    if complaint and complaint != NO_LOCK_PLUGIN and family(ctx.facts.get(system.OS_RELEASE)) != "debian":
        fix = "plugins=1 in /etc/dnf/dnf.conf, enabled = 1 in /etc/dnf/plugins/versionlock.conf"
        if family(ctx.facts.get(system.OS_RELEASE)) == "suse":
            fix = "locksfile.apply = yes there: grep -rn locksfile.apply /etc/zypp"
        return fail("locks that are heeded", complaint, f"{fix}; or hold: false")
    return not_asked("no setting switches its locks off")


@check("nvidia_driver.space", *DECISION_PROBES, system.SPACE, moment="preflight", evidence=system.SPACE.evidence)
def space(ctx: Ctx) -> Outcome:
    """/var has room for the packages and a DKMS build, if there is anything to install."""
    decision = decided(ctx)
    built = all(kernel.nvidia == decision.version for kernel in built_here(ctx.fragment, ctx.facts))
    if built and (decision.kept or ctx.fragment.source == "runfile"):
        return skip("nothing to install")
    room = free_space(ctx.host.site, {"nvidia_driver": ROOM}).get("nvidia_driver", Room(path="/var", mib=0))
    free = ctx.facts.get(system.SPACE).get(room.path, 0)
    if free < room.mib:
        clean = words(ctx.facts.get(system.OS_RELEASE)).clean
        fix = f"free space in {room.path} ({clean}; journalctl --vacuum-size=200M), then run again"
        return fail(f"{room.mib} MiB free in {room.path}", f"{free} MiB", fix)
    return ok(f"{free} MiB free in {room.path}")


@check(
    "nvidia_driver.clients",
    *(*DECISION_PROBES, nvidia.CLIENTS, nvidia.DRIVER, nvidia.PARAMETERS, system.CONTAINER, RUNFILE),
    moment="preflight",
    evidence=nvidia.CLIENTS.evidence,
)
def clients(ctx: Ctx) -> Outcome:
    """No user's process holds a GPU if its driver would be unloaded; services are stopped and started again."""
    if kind := ctx.facts.get(system.CONTAINER):
        return skip(f"{kind} container: the loaded driver is the machine's, not this host's")
    decision = decided(ctx)
    reasons = reload_reasons(ctx, decision)
    if not reasons:
        return ok("the loaded driver stays")
    return judge_holders(
        ctx, (Change(kind="module", name="nvidia", before=reason, after="reloaded") for reason in reasons)
    )


CHECKS = (resolvable, leftovers, build_tools, holdable, space, clients)
